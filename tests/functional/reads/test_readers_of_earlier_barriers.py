"""A reader keeps the barrier that it holds: also one that has to look back, because a table was left
behind, and whoever expires snapshots."""

from __future__ import annotations

import pytest

from dbt_streamsql.meta import Retention
from tests.support.steps import observing

pytestmark = pytest.mark.spark


@pytest.fixture
def both(engine, schema, tune):
    """A query over two views of one table, of which one has been left behind; versions go at once."""
    tune(engine, Retention(barriers=2), barriers_together=1)
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
    return {lease.id: lease.barrier for lease in engine.store.leases.live()}


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


@pytest.mark.parametrize("full_refresh", [False, True])
def test_what_a_reader_holds_outlives_an_expiry_while_the_next_barrier_is_published(
    engine, schema, full_refresh
):
    at = f"lake.{schema}"
    engine.spark.sql(f"CREATE TABLE {at}.orders (id INT, amount INT)")
    insert(engine, at, 1)
    engine.advance()
    name, query = next(iter(queries(at).items()))
    engine.create_materialized_view(name, query)
    look, seen = f"SELECT n FROM {name}", []

    def expire(step, moment):
        if (step, moment) == ("barrier.commit", "before"):
            engine.spark.sql(
                f"CALL lake.system.expire_snapshots(table => '{schema}.counted', "
                "older_than => now(), retain_last => 1)"
            )
            seen.append(reader.sql(look).first().n)

    insert(engine, at, 2)
    with engine.reader() as reader, observing(expire):
        engine.create_materialized_view(name, query, full_refresh=full_refresh)
        assert seen == [1]
        assert reader.sql(look).first().n == 1
    assert engine.sql(look).first().n == 2
    assert engine.verify(name) == []
