"""Rows come to the driver up to so many bytes of memory; views of longer ones stay right."""

from __future__ import annotations

import pytest

from dbt_streamsql.storage.arrow_rows import TooManyBytesError, arrow_rows

pytestmark = [pytest.mark.spark, pytest.mark.hunts]

MOST = 1 << 20
LONG = "repeat(md5(CAST(id AS STRING)), 1000)"
"""32,000 bytes, of which a file needs few."""

ODD = """
    SELECT id, IF(id % 3 = 0, NULL, named_struct('a', nullif(id, 4), 'b', nullif(array('x', NULL), array()))) AS s,
    TIMESTAMP'2024-01-01' + make_dt_interval(id) AS t, CAST(id AS DECIMAL(20, 2)) AS d
    FROM range(1000)
"""


@pytest.mark.parametrize("where", ["true", "id = 5", "false"])
def test_rows_come_as_spark_sends_them(spark, where):
    frame = spark.sql(f"SELECT * FROM ({ODD}) WHERE {where} ORDER BY id DESC")
    found, wanted = arrow_rows(frame, MOST), frame.toArrow()
    assert found.schema == wanted.schema
    assert found.equals(wanted)


@pytest.mark.parametrize("rows", [1_000, 100_000], ids=["by us", "by Spark"])
def test_a_result_that_is_too_long_is_given_up_and_the_session_goes_on(spark, rows):
    frame = spark.sql(f"SELECT {LONG} AS text FROM range(0, {rows}, 1, 4)")
    with pytest.raises(TooManyBytesError, match="more than 1 MB"):
        arrow_rows(frame, MOST)
    assert not spark.sparkContext.statusTracker().getActiveJobsIds(), "the query has ended"
    assert arrow_rows(spark.range(3), MOST).num_rows == 3


def test_an_error_of_the_query_is_that_of_the_query(spark):
    with pytest.raises(Exception, match="DIVIDE_BY_ZERO"):
        arrow_rows(spark.sql("SELECT 1 / (id - 3) FROM range(5)"), MOST)


@pytest.fixture
def view(engine, schema, tune):
    """A view of a thousand short rows."""
    table, name = f"lake.{schema}.t", f"lake.{schema}.v"
    engine.spark.sql(f"CREATE TABLE {table} AS SELECT id, 'short' AS text FROM range(1000)")
    engine.create_materialized_view(name, f"SELECT id, text FROM {table} WHERE id <> 3")
    tune(engine, fetched_bytes=MOST)
    return table, name


def insert(engine, table, first, text=LONG):
    engine.spark.sql(f"INSERT INTO {table} SELECT id, {text} FROM range({first}, {first} + 100)")


@pytest.mark.parametrize("held", [{}, {"held_rows": -1}], ids=["held", "by Spark"])
def test_a_view_of_long_rows_is_written_in_full_and_not_compared_again(engine, view, tune, held):
    table, name = view
    tune(engine, comparing=0.0, compared_rows=1_000_000, **held)
    insert(engine, table, 2000)
    told = engine.advance().tables[name]
    assert told.mode == "full"
    assert "cannot be compared with its query: its rows take more than 1 MB" in told.reason
    insert(engine, table, 3000, "'short'")
    assert engine.advance().tables[name].strategy == "rows"
    assert engine.verify(name) == []


def test_a_long_change_stays_in_spark(engine, view, tune):
    table, name = view
    tune(engine, compared_rows=-1)
    insert(engine, table, 2000)
    told = engine.advance().tables[name]
    assert (told.mode, told.rows_inserted) == ("append", 100)
    engine.spark.sql(f"UPDATE {table} SET text = upper(text) WHERE id % 2 = 0")
    told = engine.advance().tables[name]
    assert (told.mode, told.rows_inserted, told.rows_deleted) == ("incremental", 550, 550)
    assert engine.verify(name) == []


def test_short_keys_of_long_rows_are_looked_up_by_spark(engine, schema, view, tune):
    table, _ = view
    name = f"lake.{schema}.longest"
    engine.create_materialized_view(
        name, f"SELECT id, max(text) AS text, count(*) AS n FROM {table} GROUP BY id"
    )
    tune(engine, compared_rows=-1, held_rows=-1)
    insert(engine, table, 2000)
    engine.advance()
    insert(engine, table, 2000, "'~'")
    told = engine.advance().tables[name]
    assert (told.strategy, told.rows_inserted, told.rows_deleted) == ("fold", 100, 100)
    assert engine.verify(name) == []
