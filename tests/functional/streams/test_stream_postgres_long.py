"""Long values (TOAST) that a real PostgreSQL does not send again, in a table by key."""

from __future__ import annotations

import random

import pytest

from dbt_streamsql.errors import StreamSqlError
from tests.support.followed_postgres import options_of
from tests.support.steps import dying

pytestmark = pytest.mark.processes

LONG = ("body", "raw", "tags", "doc", "num")


def value(chance, name):
    """SQL of a random value that is long enough to be stored beside the row."""
    number = chance.randrange(10**6)
    if chance.random() < 0.15:
        return "NULL"
    return {
        "body": f"repeat('text {number}', 900)",
        "raw": f"convert_to(repeat('bytes {number}', 900), 'UTF8')",
        "tags": f"ARRAY[repeat('tag {number}', 900), NULL, 'x']",
        "doc": f"jsonb_build_object('k', repeat('doc {number}', 900))",
        "num": f"repeat('7{number}', 2000)::numeric",
    }[name]


def made(sql):
    sql(
        "CREATE TABLE t (id int PRIMARY KEY, n int, body text, raw bytea, tags text[], doc jsonb, "
        "num numeric)"
    )
    for name in LONG:
        sql(f"ALTER TABLE t ALTER {name} SET STORAGE EXTERNAL")


def followed_by(engine, schema, port, database, key="id", **config):
    table = f"lake.{schema}.t"
    source = {
        "connector": "postgres",
        "columns": [["num", "string"]],
        "options": options_of(port, database),
    }
    engine.create_streaming_table(
        table,
        f"SELECT id, n, body, raw, tags, doc, num, _op, _seq FROM lake.{schema}.stream",
        stream=f"lake.{schema}.stream",
        source=source,
        key=[key],
        sequence_by="_seq",
        delete_when="_op = 'd'",
        truncate_when="_op = 't'",
        leave_out=["_op", "_seq"],
        **config,
    )
    return table


def rows_of(engine, table):
    found = engine.sql(f"SELECT id, n, body, raw, tags, doc, num FROM {table}").collect()
    return sorted(
        (tuple(bytes(v) if isinstance(v, bytearray) else v for v in row) for row in found),
        key=repr,
    )


def those_of(sql):
    found = sql("SELECT id, n, body, raw, tags::text, doc::text, num::text FROM t").fetchall()
    return sorted(found, key=repr)


def test_the_table_is_that_of_the_database_without_its_whole_old_rows(
    engine, schema, sql, port, database
):
    seed = random.randrange(1 << 30)
    print("seed", seed)
    chance = random.Random(seed)
    made(sql)

    def change():
        key, drawn = chance.randrange(8), chance.random()
        values = ", ".join(value(chance, name) for name in LONG)
        if drawn < 0.2:
            sql(f"INSERT INTO t VALUES ({key}, 0, {values}) ON CONFLICT (id) DO NOTHING")
        elif drawn < 0.3:
            sql(f"DELETE FROM t WHERE id = {key}")
        elif drawn < 0.35:
            sets = f"({', '.join(LONG)}) = ROW ({values})"
            sql(f"UPDATE t SET id = {100 + chance.randrange(10**6)}, {sets} WHERE id = {key}")
        elif drawn < 0.37:
            sql("TRUNCATE t")
        else:
            some = [name for name in LONG if chance.random() < 0.25]
            sets = "".join(f", {name} = {value(chance, name)}" for name in some)
            sql(f"UPDATE t SET n = n + 1{sets} WHERE id = {key}")

    for _ in range(20):
        change()
    table = followed_by(engine, schema, port, database)
    for barrier in range(4):
        assert rows_of(engine, table) == those_of(sql)
        for _ in range(25):
            change()
        if barrier == 1:
            with dying("barrier.precommit"):
                engine.advance()
            engine.abort()
        engine.advance()
    assert rows_of(engine, table) == those_of(sql)
    assert sql("SELECT relreplident FROM pg_class WHERE relname = 't'").fetchone()[0] == "d"
    forget(sql, database)


def test_a_new_key_has_no_value_to_keep(engine, schema, sql, port, database):
    made(sql)
    sql("INSERT INTO t (id, n, body) VALUES (1, 1, repeat('x', 9000))")
    table = followed_by(engine, schema, port, database, on_error="quarantine")
    sql("UPDATE t SET n = 2")
    engine.advance()
    assert rows_of(engine, table) == those_of(sql)
    sql("UPDATE t SET id = 2")
    sql("UPDATE t SET n = 3")
    engine.advance()
    assert rows_of(engine, table) == []
    found = engine.sql(f"SELECT reason FROM {table}__quarantine").collect()
    assert len(found) == 2
    assert all("column body: PostgreSQL does not send a long value" in row[0] for row in found)
    sql("UPDATE t SET body = 'short'")
    engine.advance()
    assert rows_of(engine, table) == those_of(sql)
    forget(sql, database)


def test_a_table_by_another_key_than_the_source_has_keeps_no_value(
    engine, schema, sql, port, database
):
    made(sql)
    sql("INSERT INTO t (id, n, body) VALUES (1, 1, repeat('x', 9000))")
    followed_by(engine, schema, port, database, key="n")
    sql("UPDATE t SET doc = '1'")
    with pytest.raises(StreamSqlError) as caught:
        engine.advance()
    assert caught.value.code == "BAD_RECORD"
    assert "the key differs from that of the source, (id)" in str(caught.value)
    forget(sql, database)


def forget(sql, database):
    sql(
        "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = %s",
        (database,),
    )
