"""The folder of a dropped table: Iceberg deletes the files of a table, and leaves its folders."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

_LOCAL = "file:"


@contextmanager
def folder_swept(spark: SparkSession, table: str) -> Iterator[None]:
    """Around the drop of a table, named in SQL: its folder goes too, if nothing is left in it.

    Only a local one: an object store has no folders.
    """
    folder = _folder(spark, table)
    yield
    if folder is not None:
        for at, _, _ in os.walk(folder, topdown=False):
            with suppress(OSError):  # it holds something, or is gone
                Path(at).rmdir()


def _folder(spark: SparkSession, table: str) -> Path | None:
    try:
        rows = spark.sql(f"DESCRIBE TABLE EXTENDED {table}").collect()
    except PySparkException:
        return None
    told = {row[0]: row[1] for row in rows}
    path = told.get("Location", "").removeprefix(_LOCAL)
    # The files of other tables may be somebody else's, who expects the folder.
    if told.get("Provider") != "iceberg" or not path.startswith("/"):
        return None
    return Path("/" + path.lstrip("/"))
