"""Iceberg tables as streams: the rows that came between two of their snapshots."""

from __future__ import annotations

import random

import pytest

from dbt_streamsql.errors import StreamSqlError
from tests.support.streams import opened, problems, records, through


@pytest.fixture
def table(schema):
    return f"lake.{schema}.t"


@pytest.fixture
def sql(spark, table):
    def run(text, **values):
        return spark.sql(text.format(t=table), args=values or None)

    run(
        "CREATE TABLE {t} (id BIGINT, v STRING) USING iceberg TBLPROPERTIES ('format-version'='3', "
        "'write.delete.mode'='merge-on-read', 'write.update.mode'='merge-on-read', "
        "'write.merge.mode'='merge-on-read')"
    )
    return run


ROW = ("id", "v", "_op")


def refused(code, call, *arguments):
    with pytest.raises(StreamSqlError) as caught:
        call(*arguments)
    assert caught.value.code == code
    return str(caught.value)


def test_what_the_table_has_and_then_what_is_appended_comes_once(spark, sql, table):
    sql("INSERT INTO {t} VALUES (1, 'a'), (1, 'a'), (2, NULL)")
    source = opened("table", table=table)
    rows, at = through(source, spark, *ROW)
    assert rows == [(1, "a", "r"), (1, "a", "r"), (2, None, "r")]
    assert source.end(spark, at) is None
    sql("INSERT INTO {t} VALUES (3, 'c')")
    sql("INSERT INTO {t} VALUES (3, 'c'), (1, 'a')")
    end = source.end(spark, at)
    assert end.records == 3
    assert end.oldest > 1.7e9
    rows, at = through(source, spark, *ROW, after=at)
    assert rows == [(1, "a", "c"), (3, "c", "c"), (3, "c", "c")]


def test_compaction_is_nothing_new(spark, sql, table, schema):
    sql("INSERT INTO {t} VALUES (1, 'a')")
    source = opened("table", table=table)
    _, at = through(source, spark)
    sql("INSERT INTO {t} VALUES (2, 'b')")
    compact = f"CALL lake.system.rewrite_data_files(table => '{schema}.t', options => map('min-input-files', '1', 'rewrite-all', 'true'))"
    spark.sql(compact)
    rows, at = through(source, spark, *ROW, after=at)
    assert rows == [(2, "b", "c")]
    spark.sql(compact)
    assert source.end(spark, at) is None


def test_deletes_stop_a_stream_of_new_rows_unless_it_passes_over_them(spark, sql, table):
    sql("INSERT INTO {t} VALUES (1, 'a'), (2, 'b')")
    source, careless = (
        opened("table", table=table),
        opened("table", table=table, on_change="ignore"),
    )
    _, at = through(source, spark)
    sql("DELETE FROM {t} WHERE id = 1 AND 1 IN (SELECT 1)")
    assert careless.end(spark, at) is None or not records(
        careless, spark, at, careless.end(spark, at).position
    )
    told = refused("STREAM_CHANGED", source.end, spark, at)
    assert "on_change" in told
    sql("INSERT INTO {t} VALUES (3, 'c')")
    refused("STREAM_CHANGED", source.end, spark, at)
    rows, _ = through(careless, spark, *ROW, after=at)
    assert rows == [(3, "c", "c")]


def test_changes_are_a_delete_of_the_old_row_and_the_new_one(spark, sql, table):
    sql("INSERT INTO {t} VALUES (1, 'a'), (2, 'b'), (2, 'b')")
    source = opened("table", table=table, on_change="changes")
    first, at = through(source, spark, "_seq", "_op", "id")
    sql("UPDATE {t} SET v = 'z' WHERE id = 2")
    sql("DELETE FROM {t} WHERE id = 1 AND 1 IN (SELECT 1)")
    sql("INSERT INTO {t} VALUES (4, 'd'), (4, 'd')")
    seen = through(source, spark, "_seq", "_op", "id", after=at)[0]
    assert max(seen)[1] == "c"
    assert min(seen)[1] == "d"
    assert min(seen) > max(first)
    rows, _ = through(source, spark, "_op", "id", "v", after=at)
    assert rows == [
        ("c", 2, "z"),
        ("c", 2, "z"),
        ("c", 4, "d"),
        ("c", 4, "d"),
        ("d", 1, "a"),
        ("d", 2, "b"),
        ("d", 2, "b"),
    ]


def test_nothing_is_lost_or_doubled_wherever_the_barriers_fall(spark, sql, table):
    chance = random.Random(5)
    source = opened("table", table=table, max_records_per_barrier=7)
    written, found, at = 0, [], None
    for _ in range(12):
        for _ in range(chance.randrange(3)):
            count = chance.randrange(1, 6)
            sql(
                "INSERT INTO {t} SELECT id, concat('v', id) FROM range(:a, :b)",
                a=written,
                b=written + count,
            )
            written += count
        end = source.end(spark, at)
        if end is None or chance.random() < 0.3:
            continue
        rows = records(source, spark, at, end.position, "id")
        assert at is None or len(rows) == end.records <= 7
        found, at = found + rows, end.position
    rest, _ = through(source, spark, "id", after=at)
    assert sorted(found + rest) == [(n,) for n in range(written)]


def test_latest_reads_nothing_of_what_was_there(spark, sql, table):
    sql("INSERT INTO {t} VALUES (1, 'a')")
    source = opened("table", table=table, start="latest")
    rows, at = through(source, spark, *ROW)
    assert rows == []
    sql("INSERT INTO {t} VALUES (2, 'b')")
    assert through(source, spark, "id", after=at)[0] == [(2,)]


def test_an_empty_table_is_a_beginning_too(spark, sql, table):
    source = opened("table", table=table)
    rows, at = through(source, spark, *ROW)
    assert rows == []
    sql("INSERT INTO {t} VALUES (2, 'b')")
    assert through(source, spark, "id", "_op", after=at)[0] == [(2, "c")]


def test_what_is_gone_is_told(spark, sql, table, schema):
    sql("INSERT INTO {t} VALUES (1, 'a')")
    source = opened("table", table=table)
    _, at = through(source, spark)
    sql("INSERT INTO {t} VALUES (2, 'b')")
    spark.sql(
        f"CALL lake.system.expire_snapshots(table => '{schema}.t', older_than => TIMESTAMP '2100-01-01', retain_last => 1)"
    )
    assert "is gone" in refused("STREAM_LOST", source.end, spark, at)
    _, at = through(source, spark)
    sql("DROP TABLE {t}")
    refused("TABLE_MISSING", source.end, spark, at)
    sql("CREATE TABLE {t} (id BIGINT, v STRING) USING iceberg")
    assert "dropped and recreated" in refused("STREAM_LOST", source.end, spark, at)
    refused("STREAM_LOST", source.read, spark, None, at)


def test_a_table_that_was_rolled_back_is_told(spark, sql, table, schema):
    sql("INSERT INTO {t} VALUES (1, 'a')")
    source = opened("table", table=table)
    _, at = through(source, spark)
    sql("INSERT INTO {t} VALUES (2, 'b')")
    _, later = through(source, spark, *ROW, after=at)
    spark.sql(f"CALL lake.system.rollback_to_snapshot('{schema}.t', {at['version']})")
    sql("INSERT INTO {t} VALUES (3, 'c')")
    assert "is not an ancestor" in refused("STREAM_LOST", source.end, spark, later)


def test_declared_types_are_cast_and_what_does_not_fit_is_a_problem(spark, sql, table):
    sql("INSERT INTO {t} VALUES (1, '7'), (2, 'x'), (3, NULL)")
    source = opened("table", [("v", "int")], table=table)
    end = source.end(spark, None)
    assert source.columns(spark) == (
        ("id", "bigint"),
        ("v", "int"),
        ("_op", "string"),
        ("_seq", "bigint"),
    )
    assert records(source, spark, None, end.position, *ROW) == [
        (1, 7, "r"),
        (3, None, "r"),
        (None,) * 3,
    ]
    ((place, told),) = problems(source, spark, None, end.position)
    assert told == "column v: x is not of type int"
    assert place.startswith("snapshot ")
    refused("CONFIG_INVALID", opened("table", [("nothing", "int")], table=table).columns, spark)
    odd = opened("table", [("id", "array<int>")], table=table)
    refused("CONFIG_INVALID", odd.read, spark, None, end.position)


def test_a_new_column_comes_with_the_next_rows(spark, sql, table):
    sql("INSERT INTO {t} VALUES (1, 'a')")
    source = opened("table", table=table)
    _, at = through(source, spark)
    sql("INSERT INTO {t} VALUES (2, 'b')")
    sql("ALTER TABLE {t} ADD COLUMN w INT")
    sql("INSERT INTO {t} VALUES (3, 'c', 9)")
    assert through(source, spark, "id", "w", after=at)[0] == [(2, None), (3, 9)]


def test_a_column_with_a_name_of_the_connectors_is_refused(spark, sql, table):
    sql("ALTER TABLE {t} ADD COLUMN _op STRING")
    refused("STREAM_CHANGED", opened("table", table=table).columns, spark)
