"""Tables of a catalog whose SQLite file is on this machine, looked up without asking Spark.

Over Spark Connect the metadata of a table costs four statements. If the server is known to run
here, with its catalog in a local file, the catalog's row names the table's metadata file, which
contains the same facts and never changes: this takes a millisecond. Changes of that row are
Iceberg's own statements (JdbcUtil, V1), in one transaction.
"""

from __future__ import annotations

import gzip
import json
import sqlite3
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from dbt_streamsql.quoting import TableName
from dbt_streamsql.storage.locations import local_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_catalogs: WeakKeyDictionary[SparkSession, tuple[str, Path]] = WeakKeyDictionary()
_ATTEMPTS = 3


class CatalogNotLocalError(Exception):
    """The catalog is not local, so Spark must be asked."""


def declare(spark: SparkSession, catalog: str, file: Path) -> None:
    """Declare that the session's catalog of that name keeps its tables in this SQLite file."""
    _catalogs[spark] = (catalog, file)


def inherit(spark: SparkSession, other: SparkSession) -> None:
    """Declare that `other` is a session on the same server with the same catalogs."""
    if spark in _catalogs:
        _catalogs[other] = _catalogs[spark]


def is_view(spark: SparkSession, name: TableName) -> bool:
    """Whether the catalog has a view of that name. Error: CatalogNotLocalError."""
    return _row(spark, name)[0] == "VIEW"


def has_schema(spark: SparkSession, catalog: str, schema: str) -> bool:
    """Whether the catalog has a schema of that name. Error: CatalogNotLocalError."""
    with _database(spark, catalog, "ro") as database:
        found = database.execute(
            "SELECT 1 FROM iceberg_namespace_properties "
            "WHERE catalog_name = ? AND namespace = ? LIMIT 1",
            (catalog, schema),
        ).fetchone()
    return found is not None


def location(spark: SparkSession, name: TableName) -> str:
    """The table's metadata file, '' when there is no such table. Error: CatalogNotLocalError."""
    kind, place = _row(spark, name)
    return place if kind == "TABLE" else ""


def add(spark: SparkSession, name: TableName, file: str) -> None:
    """Register a new name for a metadata file. Error: CatalogNotLocalError."""
    with _database(spark, name.catalog, "rw") as database, database:
        database.execute(
            "INSERT INTO iceberg_tables (catalog_name, table_namespace, table_name, "
            "metadata_location, previous_metadata_location, iceberg_type) "
            "VALUES (?, ?, ?, ?, NULL, 'TABLE')",
            (*_key(name), file),
        )


def swap(
    spark: SparkSession,
    name: TableName,
    base: str,
    other: TableName,
    properties: Mapping[str, str | None],
) -> bool:
    """See `IcebergTables.swap`; `other` loses its name in the same transaction."""
    found = body(spark, other)
    if found is None or location(spark, name) != base:
        return False
    new = _written(found, location(spark, other), properties)
    this = "catalog_name = ? AND table_namespace = ? AND table_name = ? AND metadata_location = ?"
    with _database(spark, name.catalog, "rw") as database, database:
        changed = database.execute(
            "UPDATE iceberg_tables SET metadata_location = ?, previous_metadata_location = ? "
            f"WHERE {this} AND (iceberg_type = 'TABLE' OR iceberg_type IS NULL)",
            (new, base, *_key(name), base),
        )
        if changed.rowcount:
            database.execute(
                "DELETE FROM iceberg_tables "
                "WHERE catalog_name = ? AND table_namespace = ? AND table_name = ?",
                _key(other),
            )
    if not changed.rowcount:
        _path(new).unlink()
    return bool(changed.rowcount)


def body(spark: SparkSession, name: TableName) -> Mapping[str, Any] | None:
    """The table's metadata file, None when there is no table. Error: CatalogNotLocalError."""
    for _ in range(_ATTEMPTS):
        kind, location = _row(spark, name)
        if kind == "VIEW" or not location:
            return None
        try:
            found: Mapping[str, Any] = json.loads(_content(location))
        except FileNotFoundError:
            # Superseded since the row was read, and removed: old ones are not kept forever.
            continue
        except (OSError, ValueError) as error:
            raise CatalogNotLocalError(str(error)) from error
        return found
    raise CatalogNotLocalError


def _row(spark: SparkSession, name: TableName) -> tuple[str, str]:
    """Kind and metadata file of a table or view: ('', '') when there is none."""
    with _database(spark, name.catalog, "ro") as database:
        row = database.execute(
            "SELECT coalesce(iceberg_type, 'TABLE'), metadata_location FROM iceberg_tables "
            "WHERE catalog_name = ? AND table_namespace = ? AND table_name = ?",
            _key(name),
        ).fetchone()
    return (row[0], row[1] or "") if row else ("", "")


def _key(name: TableName) -> tuple[str, str, str]:
    return name.catalog, name.schema, name.table


@contextmanager
def _database(spark: SparkSession, catalog: str, mode: str) -> Iterator[sqlite3.Connection]:
    """The catalog's file, open for reading (`ro`) or writing (`rw`)."""
    known, file = _catalogs.get(spark, ("", None))
    if file is None or known != catalog:
        raise CatalogNotLocalError
    try:
        address = f"{file.as_uri()}?mode={mode}"
        with closing(sqlite3.connect(address, uri=True, timeout=20)) as database:
            yield database
    except sqlite3.Error as error:
        raise CatalogNotLocalError(str(error)) from error


def _written(found: Mapping[str, Any], file: str, properties: Mapping[str, str | None]) -> str:
    """Write a new metadata file: `found`, from `file`, with changed properties; its name."""
    kept = {key: v for key, v in found.get("properties", {}).items() if key not in properties}
    more = {key: value for key, value in properties.items() if value is not None}
    past = {"timestamp-ms": found["last-updated-ms"], "metadata-file": file}
    now = max(int(time.time() * 1000), found["last-updated-ms"])
    changed = {
        **found,
        "properties": kept | more,
        "metadata-log": [*found.get("metadata-log", []), past],
        "last-updated-ms": now,
    }
    number = int(file.rpartition("/")[2].partition("-")[0]) + 1
    folder = changed["properties"].get("write.metadata.path", f"{found['location']}/metadata")
    new = f"{folder.rstrip('/')}/{number:05d}-{uuid.uuid4()}.metadata.json"
    path = _path(new)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(changed), encoding="utf-8")
    return new


def _path(location: str) -> Path:
    path = local_path(location)
    if path is None:
        raise CatalogNotLocalError
    return path


def _content(location: str) -> bytes:
    file = _path(location)
    content = file.read_bytes()
    return gzip.decompress(content) if ".gz" in file.suffixes else content
