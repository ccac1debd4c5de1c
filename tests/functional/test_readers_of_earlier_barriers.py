"""A reader that has to look back, because a table was left behind, holds what it has found."""

from __future__ import annotations

import pytest

from dbt_streamsql.meta import Retention, retention

pytestmark = pytest.mark.spark


@pytest.fixture
def both(engine, schema, monkeypatch):
    """A query over two views of one table, of which one has been left behind; versions go at once."""
    monkeypatch.setattr(engine._warehouse, "retention", Retention(barriers=2))
    monkeypatch.setattr(retention, "TOGETHER", 1)
    at = f"lake.{schema}"
    engine.spark.sql(f"CREATE TABLE {at}.orders (id INT, amount INT)")
    insert(engine, at, 1)
    engine.begin()
    for name, query in queries(at).items():
        engine.create_materialized_view(name, query)
    engine.publish()
    insert(engine, at, 2)
    name, query = next(iter(queries(at).items()))
    engine.create_materialized_view(name, query)
    return f"SELECT n, total FROM {at}.counted, {at}.summed"


def queries(at):
    return {
        f"{at}.counted": f"SELECT count(*) AS n FROM {at}.orders",
        f"{at}.summed": f"SELECT sum(amount) AS total FROM {at}.orders",
    }


def held(engine):
    """The barrier of each lease that is held, by the lease's own name."""
    return {lease.id: lease.barrier for lease in engine._warehouse.store.leases.live()}


def insert(engine, at, number):
    engine.spark.sql(f"INSERT INTO {at}.orders VALUES ({number}, {10 * number})")


def go_on(engine, schema):
    for number in range(3, 8):
        insert(engine, f"lake.{schema}", number)
        engine.advance()
    engine.sweep()


def test_a_reader_gets_the_same_answer_after_many_barriers(engine, schema, both):
    others = set(held(engine))
    with engine.reader() as reader:
        assert tuple(reader.sql(both).first()) == (1, 10)
        go_on(engine, schema)
        assert tuple(reader.sql(both).first()) == (1, 10)
        own = [barrier for lease, barrier in held(engine).items() if lease not in others]
        assert set(own) == {reader.barrier, reader.barrier - 1}
    assert set(held(engine)) == others


def test_a_query_at_repeatable_read_is_held_until_the_engine_is_closed(engine, schema, both):
    frame = engine.sql(both, "repeatable_read")
    go_on(engine, schema)
    assert tuple(frame.first()) == (1, 10)
