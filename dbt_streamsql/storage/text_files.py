"""Text files anywhere Spark can access: plain paths and `file:` by Python, others by Hadoop."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.storage.java import is_connect, write_file

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):")
Session = Callable[[], "SparkSession"]
"""Returns the session; called only for places that need Spark, so that Spark need not start."""


def read_text(place: str, spark: Session) -> str:
    """The text of a file (UTF-8). `place`: a path, or a URI of any file system that Spark reads.

    Error: FILE_UNREADABLE.
    """
    local = _local(place)
    try:
        if local is not None:
            return local.read_text(encoding="utf-8")
        # In one partition, since a text without lines is a file without rows.
        rows = spark().read.text(place, wholetext=True).collect()
    except Exception as error:
        raise _refused("read", place, error) from error
    if len(rows) != 1:
        raise _refused("read", place, ValueError(f"there are {len(rows)} files"))
    return str(rows[0][0])


def write_text(place: str, text: str, spark: Session) -> None:
    """Write a file atomically; an existing one is replaced.

    Error: FILE_UNREADABLE; over Spark Connect for all non-local files.
    """
    local = _local(place)
    try:
        if local is not None:
            local.parent.mkdir(parents=True, exist_ok=True)
            beside = local.with_name(f".{local.name}.part")
            beside.write_text(text, encoding="utf-8")
            beside.replace(local)
        else:
            _write_by_hadoop(spark(), place, text)
    except StreamSqlError:
        raise
    except Exception as error:
        raise _refused("write", place, error) from error


def _write_by_hadoop(spark: SparkSession, place: str, text: str) -> None:
    if is_connect(spark):
        raise StreamSqlError(
            "FILE_UNREADABLE",
            "over Spark Connect, files can only be written locally",
            given=place,
            allowed="a local path",
            hint="write it to a local file and copy it there",
        )
    write_file(spark, place, text)


def _local(place: str) -> Path | None:
    """The path of a local file; None when the place is in another file system."""
    scheme = _SCHEME.match(place)
    if scheme is None:
        return Path(place)
    return Path(unquote(urlsplit(place).path)) if scheme[1].lower() == "file" else None


def _refused(what: str, place: str, error: Exception) -> StreamSqlError:
    told = str(error).strip().splitlines() or [type(error).__name__]
    return StreamSqlError(
        "FILE_UNREADABLE",
        f"the file cannot be {what if what == 'read' else 'written'}",
        given=f"{place}: {told[0]}",
        allowed="a path, or a URI of a file system that Spark reaches (file:, s3a:, hdfs: …)",
        hint="check the name, and what Spark needs for its scheme (jars, credentials)",
    )
