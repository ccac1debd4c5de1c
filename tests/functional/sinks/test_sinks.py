"""What is published leaves for a system outside: all of it, once, and nothing that is only staged."""

from __future__ import annotations

import threading
import time

import pytest

from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.meta.inspect import history, overview
from dbt_streamsql.runner.loop import Runner, Schedule
from dbt_streamsql.runtime.core.failpoints import SINK_STEPS
from tests.support.sinks import deliveries, replayed, shop  # noqa: F401 - a fixture
from tests.support.steps import dying

pytestmark = [pytest.mark.spark, pytest.mark.hunts]


@pytest.fixture
def out(tmp_path):
    return tmp_path / "out"


def to_files(path, form="json", **options):
    return {"connector": "files", "format": form, "options": {"path": str(path), **options}}


def refused(code, call, *arguments, **options):
    with pytest.raises(StreamSqlError) as caught:
        call(*arguments, **options)
    assert caught.value.code == code, str(caught.value)
    return caught.value


def test_the_files_add_up_to_the_query_after_every_run(engine, shop, out):  # noqa: F811
    done = shop.sink(to_files(out))
    assert done.whole
    assert replayed(out) == shop.wanted
    for _ in range(6):
        shop.change()
        report = engine.advance()
        assert replayed(out) == shop.wanted
        assert all(of.error is None for of in report.sinks.values())
    assert shop.known.delivered == engine.store.latest(shop.view).barrier


def test_a_run_that_changes_nothing_delivers_nothing(engine, shop, out):  # noqa: F811
    shop.sink(to_files(out))
    before = deliveries(out)
    assert engine.advance().sinks == {}
    shop.put({7: ("rome", 1000)})
    assert not engine.advance().sinks[shop.name].whole
    assert deliveries(out) == before, "what the query leaves out is not told"


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("step", [*SINK_STEPS][1:])
def test_whoever_dies_delivers_each_change_once(engine, shop, out, step, moment):  # noqa: F811
    shop.sink(to_files(out))
    shop.put({3: ("bern", 3), 1: None})
    with dying(step, moment=moment):
        engine.advance()
    shop.put({3: ("oslo", 4), 1: ("rome", 10)})
    engine.advance()
    assert replayed(out) == shop.wanted


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("step", [*SINK_STEPS])
def test_whoever_dies_in_the_first_delivery_can_be_asked_again(
    engine,
    shop,  # noqa: F811
    out,
    step,
    moment,
):
    with dying(step, moment=moment):
        shop.sink(to_files(out))
    shop.change()
    shop.sink(to_files(out))
    engine.advance()
    assert replayed(out) == shop.wanted


def test_what_a_run_gives_up_is_not_delivered(engine, shop, out):  # noqa: F811
    shop.sink(to_files(out))
    before = replayed(out)
    shop.put({5: ("rome", 5)})
    engine.begin()
    engine.create_materialized_view(
        shop.view,
        f"SELECT id, max(city) AS city, sum(amount) AS amount FROM {shop.orders} GROUP BY id",
    )
    assert engine.adapter_api.staged(shop.view)
    assert replayed(out) == before
    engine.abort()
    assert replayed(out) == before
    engine.advance()
    assert replayed(out) == shop.wanted


def test_a_target_that_fails_does_not_hold_the_barrier_back(engine, shop, out):  # noqa: F811
    shop.sink(to_files(out))
    away = out.rename(out.with_name("away"))
    out.write_text("a file where the folder was")
    for i in range(3, 6):
        shop.put({i: ("bern", i)})
        report = engine.advance()
        assert report.sinks[shop.name].error.code == "SINK_UNREACHABLE"
        assert report.tables[shop.view].rows_inserted == 1
    assert "SINK_UNREACHABLE" in shop.known.problem
    assert shop.known.failing_since is not None
    out.unlink()
    away.rename(out)
    report = engine.advance()
    assert report.sinks[shop.name].error is None
    assert replayed(out) == shop.wanted
    assert shop.known.failing_since is None


def test_a_sink_joins_the_run_that_builds_its_table(engine, shop, out):  # noqa: F811
    view = f"{shop.view}_2"
    engine.begin()
    engine.create_materialized_view(view, f"SELECT id, amount FROM {shop.orders}")
    name = f"{shop.name}_2"
    engine.create_sink(name, f"SELECT id FROM {view}", target=to_files(out))
    assert not out.exists(), "nothing is published yet"
    assert not [sink for sink in engine.sinks.all() if sink.name == name]
    report = engine.publish()
    assert report.sinks[name].error is None
    assert replayed(out) == [(1,), (2,)]


def test_equal_rows_are_as_many_as_they_are(engine, shop, out):  # noqa: F811
    view = f"{shop.view}_2"
    engine.create_materialized_view(view, f"SELECT city, amount FROM {shop.orders}")
    name = f"{shop.name}_2"
    engine.spark.sql(f"INSERT INTO {shop.orders} VALUES (10, 'bern', 1), (11, 'bern', 2)")
    engine.create_sink(name, f"SELECT city FROM {view}", target=to_files(out))
    engine.spark.sql(f"INSERT INTO {shop.orders} VALUES (12, 'bern', 1), (13, 'bern', 1)")
    engine.advance()
    engine.spark.sql(f"DELETE FROM {shop.orders} WHERE id IN (10, 12)")
    engine.advance()
    assert replayed(out) == [("bern",), ("bern",), ("oslo",), ("rome",)]


def test_append_tells_rows_that_came_and_refuses_one_that_went(engine, shop, out):  # noqa: F811
    view = f"{shop.view}_2"
    engine.create_materialized_view(view, f"SELECT id FROM {shop.orders}")
    name = f"{shop.name}_2"
    query, target = f"SELECT id FROM {view}", to_files(out)
    engine.create_sink(name, query, target=target, mode="append")
    engine.spark.sql(f"INSERT INTO {shop.orders} VALUES (10, 'bern', 1)")
    engine.advance()
    lines = [f.read_text() for f in out.glob("barrier=*/*.json")]
    assert set("".join(lines).split()) == {'{"id":1}', '{"id":2}', '{"id":10}'}
    engine.spark.sql(f"DELETE FROM {shop.orders} WHERE id = 10")
    assert engine.advance().sinks[name].error.code == "CHANGELOG_MODE"


@pytest.mark.parametrize("form", ["parquet", "csv"])
def test_spark_reads_what_was_delivered(engine, shop, out, form):  # noqa: F811
    shop.sink(to_files(out, form))
    shop.change()
    engine.advance()
    reader = engine.spark.read.option("header", "true")
    found = reader.format(form).load(str(out))
    assert set(found.columns) == {"id", "town", "amount", "_op", "barrier"}
    assert found.where("_op = '+'").count() >= len(shop.wanted)


def test_another_query_is_refused_until_all_is_delivered_anew(engine, shop, out):  # noqa: F811
    shop.sink(to_files(out))
    shop.change()
    engine.advance()
    other = "SELECT id, city, amount FROM {view}"
    assert "--full-refresh" in refused("CONFIG_INVALID", shop.sink, to_files(out), other).hint
    assert shop.sink(to_files(out), other, full_refresh=True).whole
    assert replayed(out) == sorted((i, *row) for i, row in shop.rows.items())
    assert len(deliveries(out)) == 1


def test_deliveries_of_another_one_are_not_taken_for_its_own(engine, shop, out):  # noqa: F811
    (out / "barrier=1").mkdir(parents=True)
    assert "barrier=1" in refused("SINK_REFUSED", shop.sink, to_files(out)).given
    shop.sink(to_files(out), full_refresh=True)
    assert replayed(out) == shop.wanted


REFUSED = {
    "SELECT count(*) AS n FROM {view}": "one row",
    "SELECT a.id FROM {view} a JOIN {view} b ON a.id = b.id": "reads lake.",
    "SELECT id FROM {view} ORDER BY id LIMIT 3": "",
    "SELECT DISTINCT amount FROM {view}": "",
    "SELECT 1 AS one": "reads no table",
    "SELECT id, rand() AS r FROM {view}": "",
}


@pytest.mark.parametrize("query", REFUSED)
def test_a_query_that_is_more_than_rows_by_themselves_is_refused(shop, out, query):  # noqa: F811
    error = refused("SQL_UNSUPPORTED", shop.sink, to_files(out), query)
    assert REFUSED[query] in error.given
    assert "materialized view" in error.hint
    assert not shop.engine.sinks.all()


def test_a_table_that_nobody_maintains_is_refused(shop, out):  # noqa: F811
    error = refused("DEFINITION_MISSING", shop.sink, to_files(out), "SELECT id FROM {orders}")
    assert "materialized view" in error.hint


def test_everything_wrong_with_a_target_is_told_at_once(shop):  # noqa: F811
    target = {"connector": "files", "format": "yaml", "options": {"colour": "red"}}
    error = refused("CONFIG_INVALID", shop.sink, target, mode="upsert", key=["id"])
    for what in ("`path`", "yaml", "colour", "upsert", "`key`"):
        assert what in error.given
    assert "docs/sink.md" in error.hint
    error = refused("CONFIG_INVALID", shop.sink, {"connector": "pigeon"})
    assert "postgres" in error.allowed


def test_a_sink_that_is_dropped_is_given_nothing_more(engine, shop, out):  # noqa: F811
    shop.sink(to_files(out))
    before = replayed(out)
    engine.drop_sink(shop.name)
    shop.put({9: ("rome", 9)})
    assert engine.advance().sinks == {}
    assert replayed(out) == before
    refused("DEFINITION_MISSING", engine.drop_sink, shop.name)


def test_a_view_cannot_have_the_name_of_a_sink_nor_a_sink_that_of_a_view(
    engine,
    shop,  # noqa: F811
    out,
):
    shop.sink(to_files(out))
    query = f"SELECT id FROM {shop.orders}"
    refused("DUPLICATE_WRITER", engine.create_materialized_view, shop.name, query)
    taken = f"SELECT id FROM {shop.view}"
    refused("DUPLICATE_WRITER", engine.create_sink, shop.view, taken, target=to_files(out))


def test_the_topology_shows_it_behind_its_table(engine, shop, out):  # noqa: F811
    shop.sink(to_files(out))
    found = overview.topology(history.load(engine.store))
    (node,) = [node for node in found.nodes if node.kind == "sink"]
    assert (node.table, node.state) == (shop.name, "current")
    assert (shop.view, shop.name) in {(edge.source, edge.sink) for edge in found.edges}
    told = engine.sql("SELECT * FROM __META_ETL_SOURCE").collect()
    assert (shop.name, shop.view) in {tuple(row) for row in told}


def test_a_table_made_anew_with_lost_changes_says_so(engine, shop, out):  # noqa: F811
    shop.sink(to_files(out))
    engine.drop(shop.view)
    assert engine.advance().sinks[shop.name].error.code == "TABLE_MISSING"
    engine.create_materialized_view(shop.view, f"SELECT id, city, amount FROM {shop.orders}")
    assert engine.advance().sinks[shop.name].error.code == "SINK_LOST"
    shop.sink(to_files(out), full_refresh=True)
    assert replayed(out) == shop.wanted


def test_a_barrier_is_delivered_while_the_next_one_is_computed(engine, shop, out, observe):  # noqa: F811
    shop.sink(to_files(out))
    shop.put({3: ("bern", 3)})
    engine.advance(overlap=True)
    assert len(deliveries(out)) == 1, "it is left to the next epoch"
    was = shop.wanted
    shop.put({4: ("bern", 4), 1: None})
    published, first = threading.Event(), []

    def slow(step, moment):
        if (step, moment) == ("sink.write", "before"):
            first.append(published.wait(60))
        if (step, moment) == ("barrier.commit", "after"):
            published.set()

    observe(slow)
    report = engine.advance(overlap=True)
    assert first == [True], "its target does not hold the next barrier back"
    assert report.sinks[shop.name].barrier < report.barrier
    assert replayed(out) == was
    engine.advance(overlap=True)
    assert replayed(out) == shop.wanted
    assert shop.known.delivered == report.barrier


@pytest.mark.parametrize("step", [*SINK_STEPS][1:])
def test_a_delivery_beside_an_epoch_that_dies_is_repeated(engine, shop, out, step):  # noqa: F811
    shop.sink(to_files(out))
    shop.put({3: ("bern", 3), 1: None})
    engine.advance(overlap=True)
    shop.put({3: ("oslo", 4), 1: ("rome", 10)})
    with dying(step):
        engine.advance(overlap=True)
    engine.advance(overlap=True)
    engine.advance()
    assert replayed(out) == shop.wanted


def test_an_epoch_that_fails_lets_its_deliveries_end(engine, shop, out, observe):  # noqa: F811
    shop.sink(to_files(out))
    shop.put({3: ("bern", 3), 1: None})
    engine.advance(overlap=True)
    was = shop.wanted
    shop.put({3: ("oslo", 4)})

    def breaks(step, moment):
        if (step, moment) == ("barrier.precommit", "before"):
            raise RuntimeError("no barrier")

    observe(breaks)
    with pytest.raises(RuntimeError, match="no barrier"):
        engine.advance(overlap=True)
    assert replayed(out) == was
    assert not shop.known.under_way


def test_a_sink_that_is_dropped_beside_its_delivery_stays_dropped(engine, shop, out, observe):  # noqa: F811
    shop.sink(to_files(out))
    shop.put({3: ("bern", 3)})
    engine.advance(overlap=True)
    writing, dropped = threading.Event(), threading.Event()

    def slow(step, moment):
        if (step, moment) == ("sink.write", "before"):
            writing.set()
            dropped.wait(1)  # the drop waits for this delivery

    observe(slow)
    engine.begin()
    engine.epochs.opened.deliver_meanwhile(())
    assert writing.wait(60)
    engine.drop_sink(shop.name)
    dropped.set()
    engine.publish()
    assert engine.sinks.all() == []


def test_a_runner_without_pauses_does_not_wait_for_a_slow_sink(engine, shop, out, observe):  # noqa: F811
    """Once a delivery has taken long, the next barrier is delivered with the epoch after it; the
    last one when the runner stops."""
    shop.sink(to_files(out))
    shop.put({3: ("bern", 3), 1: None})
    stop, ticks = threading.Event(), []

    def slow(step, moment):
        if (step, moment) == ("sink.write", "before"):
            time.sleep(6)

    def hear(event):
        if event.kind != "tick":
            return
        ticks.append((bool(event.told["tables"]), bool(event.told["sinks"])))
        if ticks.count((True, True)) + ticks.count((True, False)) > 1:
            stop.set()
        elif event.told["tables"]:
            shop.put({4: ("oslo", 4)})

    observe(slow)
    assert Runner(engine, Schedule(0.0), hear).run(stop)
    assert [tick for tick in ticks if any(tick)] == [(True, True), (True, False), (False, True)]
    assert replayed(out) == shop.wanted
