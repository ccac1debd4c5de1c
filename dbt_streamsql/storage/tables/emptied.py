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
def swept(location: str) -> Iterator[None]:
    """Around the drop of the Iceberg table at `location`: its folder goes too, if nothing is left
    in it. Only a local one: an object store has no folders.
    """
    yield
    path = location.removeprefix(_LOCAL)
    if path.startswith("/"):
        for at, _, _ in os.walk("/" + path.lstrip("/"), topdown=False):
            with suppress(OSError):  # it holds something, or is gone
                Path(at).rmdir()


def location_of(spark: SparkSession, table: str) -> str:
    """Where an Iceberg table of any catalog lies, named in SQL; '' for any other.

    The files of other tables may be somebody else's, who expects the folder.
    """
    try:
        rows = spark.sql(f"DESCRIBE TABLE EXTENDED {table}").collect()
    except PySparkException:
        return ""
    told = {row[0]: row[1] for row in rows}
    return str(told.get("Location", "")) if told.get("Provider") == "iceberg" else ""
