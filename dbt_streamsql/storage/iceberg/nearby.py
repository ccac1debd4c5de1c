"""Tables of a catalog whose SQLite file lies on this machine, looked up without asking Spark.

Over Spark Connect the metadata of a table costs four statements. Where the server is known to run
here, with its catalog in a file of ours, the catalog's row names the table's metadata file, which
holds the same facts and never changes: a millisecond.
"""

from __future__ import annotations

import gzip
import json
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from dbt_streamsql.quoting import TableName

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_catalogs: WeakKeyDictionary[SparkSession, tuple[str, Path]] = WeakKeyDictionary()
_ATTEMPTS = 3


class NotNearbyError(Exception):
    """Spark has to be asked."""


def declare(spark: SparkSession, catalog: str, file: Path) -> None:
    """The session's catalog of that name keeps its tables in this SQLite file."""
    _catalogs[spark] = (catalog, file)


def inherit(spark: SparkSession, other: SparkSession) -> None:
    """`other` is a session on the same server with the same catalogs."""
    if spark in _catalogs:
        _catalogs[other] = _catalogs[spark]


def is_view(spark: SparkSession, name: TableName) -> bool:
    """Whether the catalog has a view of that name. Error: NotNearbyError."""
    return _row(spark, name)[0] == "VIEW"


def body(spark: SparkSession, name: TableName) -> Mapping[str, Any] | None:
    """The table's metadata file, or None when there is no such table. Error: NotNearbyError."""
    for _ in range(_ATTEMPTS):
        kind, location = _row(spark, name)
        if kind == "VIEW" or not location:
            return None
        try:
            found: Mapping[str, Any] = json.loads(_content(location))
        except FileNotFoundError:
            # Superseded since the row was read, and removed: old ones are not kept for ever.
            continue
        except (OSError, ValueError) as error:
            raise NotNearbyError from error
        return found
    raise NotNearbyError


def _row(spark: SparkSession, name: TableName) -> tuple[str, str]:
    """Kind and metadata file of a table or view: ('', '') when there is none."""
    catalog, file = _catalogs.get(spark, ("", None))
    if file is None or catalog != name.catalog:
        raise NotNearbyError
    try:
        address = f"{file.as_uri()}?mode=ro"
        with closing(sqlite3.connect(address, uri=True, timeout=20)) as database:
            row = database.execute(
                "SELECT coalesce(iceberg_type, 'TABLE'), metadata_location FROM iceberg_tables "
                "WHERE catalog_name = ? AND table_namespace = ? AND table_name = ?",
                (name.catalog, name.schema, name.table),
            ).fetchone()
    except sqlite3.Error as error:
        raise NotNearbyError from error
    return (row[0], row[1] or "") if row else ("", "")


def _content(location: str) -> bytes:
    path = location.removeprefix("file:")
    if not path.startswith("/"):
        raise NotNearbyError
    file = Path(path)
    content = file.read_bytes()
    return gzip.decompress(content) if ".gz" in file.suffixes else content
