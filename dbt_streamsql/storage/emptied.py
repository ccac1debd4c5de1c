"""The folder of a dropped table: Iceberg deletes a table's files, but leaves its folders."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from dbt_streamsql.storage.locations import local_path


@contextmanager
def swept(location: str) -> Iterator[None]:
    """Around the drop of the Iceberg table at `location`: also removes its folder, if it is then
    empty. Only a local one: an object store has no folders.
    """
    yield
    path = local_path(location)
    if path is not None:
        for at, _, _ in os.walk(path, topdown=False):
            with suppress(OSError):  # it holds something, or is gone
                Path(at).rmdir()


def location_of(spark: SparkSession, table: str) -> str:
    """The location of an Iceberg table of any catalog, named in SQL; '' for any other table.

    The files of other tables may belong to other users, who expect the folder.
    """
    try:
        rows = spark.sql(f"DESCRIBE TABLE EXTENDED {table}").collect()
    except PySparkException:
        return ""
    told = {row[0]: row[1] for row in rows}
    return str(told.get("Location", "")) if told.get("Provider") == "iceberg" else ""
