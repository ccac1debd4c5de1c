"""Sessions with a JVM that reach tables in part as sessions of Spark Connect do."""

from __future__ import annotations

from dbt_streamsql.storage.iceberg.access import CLASSIC, WAYS
from dbt_streamsql.storage.iceberg.strategies.jvm import JvmTables
from dbt_streamsql.storage.iceberg.strategies.sql import SqlTables


def by_sql(monkeypatch, method):
    """Until the test ends one method of `IcebergTables` is that of a session without a JVM."""
    partly = type("PartlySqlTables", (JvmTables,), {method: getattr(SqlTables, method)})
    monkeypatch.setitem(WAYS, CLASSIC, partly)
