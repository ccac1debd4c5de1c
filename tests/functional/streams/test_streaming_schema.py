"""The columns of a streaming table when its stream, or its query, gets other ones."""

from __future__ import annotations

import pytest

from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.storage.iceberg import staging
from tests.support.steps import dying

pytestmark = pytest.mark.spark

STEPS = (
    "stream.record",
    "table.build",
    "table.processed",
    "barrier.precommit",
    "publish.table",
    "barrier.commit",
)


@pytest.fixture
def source(engine, schema):
    """A table that somebody else appends to, and alters."""
    name = f"lake.{schema}.raw"
    engine.spark.sql(f"CREATE TABLE {name} (id INT, v STRING)")
    engine.spark.sql(f"INSERT INTO {name} VALUES (1, 'a'), (2, 'b')")
    return name


@pytest.fixture
def streamed(engine, schema, source):
    """Makes the streaming table, again and again, and says its name."""
    table = f"lake.{schema}.clicks"

    def make(policy="fail", query=f"SELECT * EXCEPT (_op, _seq) FROM {source}", **more):
        declared = {"connector": "table", "options": {"table": source}}
        engine.create_streaming_table(
            table, query, stream=source, source=declared, on_schema_change=policy, **more
        )
        return table

    return make


def rows_of(engine, table, columns="*"):
    found = engine.sql(f"SELECT {columns} FROM {table}").collect()
    return sorted((tuple(row) for row in found), key=str)


def columns_of(engine, table):
    return [(f.name, f.dataType.simpleString()) for f in engine.spark.table(table).schema]


def grown(engine, source, values="(3, 'c', 1.5D)"):
    engine.spark.sql(f"ALTER TABLE {source} ADD COLUMN price DOUBLE")
    engine.spark.sql(f"INSERT INTO {source} VALUES {values}")


@pytest.mark.parametrize("policy", ["append_new_columns", "sync_all_columns"])
def test_a_new_column_is_null_in_the_rows_from_before_and_views_follow(
    engine, schema, source, streamed, policy
):
    table, view = streamed(policy), f"lake.{schema}.copy"
    engine.create_materialized_view(view, f"SELECT * FROM {table} WHERE id > 1")
    grown(engine, source)
    report = engine.advance()
    assert "price is new" in report.tables[table].reason
    assert rows_of(engine, table) == [(1, "a", None), (2, "b", None), (3, "c", 1.5)]
    assert rows_of(engine, view) == [(2, "b", None), (3, "c", 1.5)]
    engine.spark.sql(f"INSERT INTO {source} VALUES (4, 'd', 2.5D)")
    report = engine.advance()
    assert (report.tables[table].mode, report.tables[view].mode) == ("append", "append")
    assert (4, "d", 2.5) in rows_of(engine, view)


def test_other_columns_are_refused_unless_the_config_allows_them(engine, source, streamed):
    table = streamed()
    grown(engine, source)
    for again in (streamed, engine.advance):
        with pytest.raises(StreamSqlError) as refused:
            again()
        assert refused.value.code == "CONFIG_INVALID"
        assert "price double is new" in str(refused.value)
        assert "append_new_columns" in str(refused.value)
    assert rows_of(engine, table) == [(1, "a"), (2, "b")]
    streamed("append_new_columns")
    assert (3, "c", 1.5) in rows_of(engine, table)


def test_ignored_columns_are_left_out(engine, source, streamed):
    table = streamed("ignore")
    grown(engine, source)
    assert engine.advance().tables[table].mode == "append"
    assert rows_of(engine, table) == [(1, "a"), (2, "b"), (3, "c")]


@pytest.mark.parametrize(
    ("policy", "columns", "rows"),
    [
        ("append_new_columns", ["id", "v"], [(1, "a"), (2, "b"), (3, None)]),
        ("sync_all_columns", ["id"], [(1,), (2,), (3,)]),
    ],
)
def test_a_column_that_goes_stays_empty_or_goes_too(
    engine, source, streamed, policy, columns, rows
):
    table = streamed(policy)
    engine.spark.sql(f"ALTER TABLE {source} DROP COLUMN v")
    engine.spark.sql(f"INSERT INTO {source} VALUES (3)")
    engine.advance()
    assert [name for name, _ in columns_of(engine, table)] == columns
    assert rows_of(engine, table) == rows


@pytest.mark.parametrize("policy", ["ignore", "fail"])
def test_a_column_that_goes_is_refused_by_who_keeps_columns(engine, source, streamed, policy):
    streamed(policy)
    with pytest.raises(StreamSqlError, match="v is missing"):
        streamed(policy, f"SELECT id FROM {source}")


def test_types_are_widened_and_nothing_else(engine, source, streamed):
    table = streamed("append_new_columns")
    engine.spark.sql(f"ALTER TABLE {source} ALTER COLUMN id TYPE BIGINT")
    engine.spark.sql(f"INSERT INTO {source} VALUES (3000000000, 'c')")
    engine.advance()
    assert columns_of(engine, table) == [("id", "bigint"), ("v", "string")]
    assert rows_of(engine, table) == [(1, "a"), (2, "b"), (3000000000, "c")]
    streamed("append_new_columns", f"SELECT CAST(id AS INT) AS id, v FROM {source}")
    assert columns_of(engine, table) == [("id", "bigint"), ("v", "string")]
    with pytest.raises(StreamSqlError, match="v is a int, not string"):
        streamed("sync_all_columns", f"SELECT id, length(v) AS v FROM {source}")


def test_the_order_of_columns_is_that_of_the_table(engine, source, streamed):
    table = streamed()
    engine.spark.sql(f"INSERT INTO {source} VALUES (3, 'c')")
    streamed(query=f"SELECT v, id FROM {source}")
    assert rows_of(engine, table) == [(1, "a"), (2, "b"), (3, "c")]


def test_rows_under_a_key_get_new_columns_and_older_records_still_change_nothing(
    engine, schema, source, streamed
):
    keyed = {"key": ["id"], "sequence_by": "length(v)", "delete_when": "v = 'gone'"}
    table = streamed("sync_all_columns", **keyed)
    engine.spark.sql(f"INSERT INTO {source} VALUES (2, 'gone')")
    engine.advance()
    grown(engine, source, "(1, 'aaa', 1.5D), (2, 'bb', 2D), (3, 'c', 3D)")
    engine.advance()
    assert rows_of(engine, table, "id, v, price") == [(1, "aaa", 1.5), (3, "c", 3.0)]
    engine.spark.sql(f"INSERT INTO {source} VALUES (1, 'aa', 9D), (3, 'gone', NULL)")
    engine.advance()
    assert rows_of(engine, table, "id, v, price") == [(1, "aaa", 1.5)]


def test_a_key_keeps_its_type(engine, source, streamed):
    keyed = {"key": "id", "sequence_by": "length(v)"}
    streamed("sync_all_columns", key=["id"], sequence_by="length(v)")
    engine.spark.sql(f"ALTER TABLE {source} ALTER COLUMN id TYPE BIGINT")
    with pytest.raises(StreamSqlError, match="key column id is a bigint, not int"):
        streamed("sync_all_columns", **{**keyed, "key": ["id"]})


def test_columns_change_though_nothing_new_was_read(engine, source, streamed):
    table = streamed("append_new_columns")
    streamed("append_new_columns", f"SELECT id, v, id + 1 AS next FROM {source}")
    assert rows_of(engine, table) == [(1, "a", None), (2, "b", None)]


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("step", STEPS)
def test_whoever_dies_while_columns_change_leaves_readers_a_whole_table(
    engine, source, streamed, step, moment
):
    table = streamed("append_new_columns")
    grown(engine, source)
    with dying(step, moment=moment):
        engine.advance()
    seen = rows_of(engine, table)
    before, after = [(1, "a"), (2, "b")], [(1, "a", None), (2, "b", None), (3, "c", 1.5)]
    assert seen in (before, after)
    engine.advance()
    assert rows_of(engine, table) == after
    assert staging.staged_tables(engine.spark, "lake") == []
