"""Two writers of one incremental table: the second to publish is told, and changes nothing."""

from __future__ import annotations

import pytest

from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.quoting import TableName
from dbt_streamsql.storage.iceberg.commits import branch_write


@pytest.fixture
def table(spark, schema):
    name = TableName("lake", schema, "t")
    spark.sql(f"CREATE TABLE {name.sql} AS SELECT 1 AS id")
    return name


def _ids(spark, table):
    return sorted(row[0] for row in spark.sql(f"SELECT id FROM {table.sql}").collect())


def _write(spark, table, value, beside):
    """Write a row on a branch, while `beside` is done, and publish it."""
    with branch_write.branch(spark, table) as target:
        beside()
        spark.sql(f"INSERT INTO {target} VALUES ({value})")


def test_who_publishes_after_another_is_refused_and_leaves_nothing(spark, table):
    with pytest.raises(StreamSqlError, match="META_CONFLICT"):
        _write(spark, table, 2, lambda: spark.sql(f"INSERT INTO {table.sql} VALUES (3)"))
    assert _ids(spark, table) == [1, 3]
    refs = spark.sql(f"SELECT name FROM {table.child('refs')}").collect()
    assert [row[0] for row in refs] == ["main"]


def test_a_later_writer_fences_an_earlier_one_off(spark, table):
    with pytest.raises(StreamSqlError, match="META_CONFLICT"):
        _write(spark, table, 3, lambda: _write(spark, table, 2, lambda: None))
    assert _ids(spark, table) == [1, 2]


def test_an_error_of_the_statement_itself_is_told_as_it_is(spark, table):
    with pytest.raises(ZeroDivisionError), branch_write.branch(spark, table):
        _ = 1 / 0
    assert _ids(spark, table) == [1]
