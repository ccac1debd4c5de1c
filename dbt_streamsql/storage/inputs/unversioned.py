"""Tables of files without versions (Parquet, CSV, JSON …): Spark is made to list the files again,
and their list shows whether they have changed."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from dbt_streamsql.quoting import TableName
from dbt_streamsql.storage.iceberg.files import place
from dbt_streamsql.storage.java import is_connect
from dbt_streamsql.storage.tables import metastore

LISTED = frozenset({"avro", "csv", "json", "orc", "parquet", "text"})
"""Formats whose rows are all in the files of the table's folder."""

_SETTLED = 2000
"""Milliseconds after which another file of the same size has another time, on any file system."""

_FACTS = re.compile(r"\b(?:path|length|modification_time)=([^;}]*)")


def looked_at(spark: SparkSession, tables: Iterable[str], now: int) -> dict[str, str]:
    """Make the session list the files of some tables again; returns their listings at `now`."""
    found = {table: TableName.parse(table) for table in tables}
    for name in found.values():
        spark.catalog.refreshTable(name.sql)
    return {table: _listing(spark, name, now) for table, name in found.items()}


def _listing(spark: SparkSession, name: TableName, now: int) -> str:
    """Names, sizes and times of a table's files as a digest; '' where they are not conclusive.

    They are not for partitioned tables, whose files may be anywhere, for other formats, over Spark
    Connect, and while a file is so new at `now` (milliseconds since 1970) that it may be replaced
    without a visible change.
    """
    if is_connect(spark):
        return ""
    try:
        told = metastore.described(spark, name)
        if told.get("Provider", "").lower() not in LISTED or "Partition Provider" in told:
            return ""
        at, system = place(spark, told["Location"])
        files, found = system.listFiles(at, True), []
        while files.hasNext():
            found.append(_FACTS.findall(str(files.next().toString())))
    except (PySparkException, Py4JError, StopIteration, KeyError):
        return ""
    if any(len(facts) != 3 or int(facts[2]) > now - _SETTLED for facts in found):
        return ""
    return hashlib.sha256(repr(sorted(found)).encode()).hexdigest()
