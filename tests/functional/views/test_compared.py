"""A small view whose changes are dear is computed anew and compared: the same change comes of it."""

from __future__ import annotations

import pytest

from dbt_streamsql.runtime.core.ways import Costs

pytestmark = pytest.mark.spark

QUERIES = {
    "groups": "SELECT k % 5 AS g, count(*) AS n, sum(v) AS total, max(v) AS most FROM {s}.a GROUP BY ALL",
    "an outer join": "SELECT a.k, a.v, b.v AS w FROM {s}.a FULL JOIN {s}.b ON a.k = b.k",
    "rows with copies": "SELECT v FROM {s}.a WHERE v IS NULL OR v > 2",
    "floats": "SELECT k, if(k % 3 = 0, double('NaN'), v / 3D) AS f FROM {s}.a",
    "days": "SELECT k, DATE'0001-01-01' + k AS d, TIMESTAMP'9999-12-31 00:00:00' AS at FROM {s}.b",
    "one group": "SELECT count(*) AS n, min(v) AS least FROM {s}.b",
}
EPOCHS = (
    "INSERT INTO {s}.a VALUES (40, 1), (41, NULL), (41, NULL); DELETE FROM {s}.b WHERE k < 3",
    "UPDATE {s}.a SET v = v + 1 WHERE k % 7 = 0; INSERT INTO {s}.b VALUES (1, 7), (NULL, 8)",
    "DELETE FROM {s}.a WHERE k = 41; DELETE FROM {s}.b",
    "INSERT INTO {s}.b SELECT id, id FROM range(4)",
)


@pytest.fixture
def tables(engine, schema):
    s = f"lake.{schema}"
    for name, rows in (("a", 30), ("b", 20)):
        engine.spark.sql(
            f"CREATE TABLE {s}.{name} (k INT, v INT) TBLPROPERTIES ('format-version' = '3')"
        )
        engine.spark.sql(f"INSERT INTO {s}.{name} SELECT id, nullif(id % 6, 3) FROM range({rows})")
    return s


def run(engine, s, statements):
    for statement in statements.format(s=s).split(";"):
        engine.spark.sql(statement)


def test_it_is_the_same_change_as_from_the_changes_row_for_row(engine, tables, tune):
    """`incremental` says: from changes, whatever the cost; `auto` may compare."""
    tune(engine, compared_rows=1_000_000, comparing=0.0)
    for number, query in enumerate(QUERIES.values()):
        for mode in ("auto", "incremental"):
            name = f"{tables}.{mode}_{number}"
            text = query.format(s=tables)
            engine.create_materialized_view(name, text, refresh_mode=mode, changelog=True)
    for changes in EPOCHS:
        run(engine, tables, changes)
        report = engine.advance().tables
        for number, query in enumerate(QUERIES):
            compared, kept = (report[f"{tables}.{m}_{number}"] for m in ("auto", "incremental"))
            assert compared.mode == "noop" or compared.strategy == "compare", query
            assert kept.strategy != "compare"
            counts = ("mode", "rows_inserted", "rows_deleted")
            assert [getattr(compared, c) for c in counts] == [getattr(kept, c) for c in counts], (
                query
            )
            assert engine.verify(f"{tables}.auto_{number}") == [], query


def test_its_readers_take_up_the_difference(engine, tables, tune):
    tune(engine, compared_rows=1_000_000, comparing=0.0)
    below, above = f"{tables}.below", f"{tables}.above"
    engine.create_materialized_view(below, QUERIES["an outer join"].format(s=tables))
    engine.create_materialized_view(
        above, f"SELECT v, count(w) AS n FROM {below} GROUP BY v", refresh_mode="incremental"
    )
    for changes in EPOCHS:
        run(engine, tables, changes)
        report = engine.advance().tables
        assert report[above].rows_read == report[below].rows_inserted + report[below].rows_deleted
        assert engine.verify(below) == engine.verify(above) == []


def test_a_view_that_forgets_is_never_compared(engine, tables, tune):
    """Its query knows again what the view has forgotten."""
    tune(engine, compared_rows=1_000_000, comparing=0.0)
    name = f"{tables}.forgets"
    query = f"SELECT k, count(*) AS n FROM {tables}.a GROUP BY k"
    engine.create_materialized_view(name, query, state_ttl="1 d")
    run(engine, tables, EPOCHS[0])
    assert engine.advance().tables[name].strategy == "fold"


def test_big_tables_are_left_to_their_changes(engine, tables, tune):
    name = f"{tables}.v"
    engine.create_materialized_view(name, QUERIES["an outer join"].format(s=tables))
    limits = ({"compared_rows": 10}, {"driver_rows": -1}, {"compared_bytes": 10})
    for changes, limit in zip(EPOCHS, limits, strict=False):
        tune(engine, **{"compared_rows": 1_000_000, "comparing": 0.0, **limit})
        run(engine, tables, changes)
        assert engine.advance().tables[name].strategy == "rows", limit
        assert engine.verify(name) == []


def test_by_itself_a_dear_plan_is_compared_and_a_cheap_one_is_not(
    engine, tables, tune, monkeypatch
):
    tune(engine, compared_rows=1_000_000)
    # What other tests of the process took says nothing of these views.
    monkeypatch.setattr(engine.warehouse, "costs", Costs())
    dear = " FULL JOIN ".join(
        [f"(SELECT k, v AS v{i} FROM {tables}.a) USING (k)" for i in range(1, 5)]
    )
    dear = f"SELECT * FROM (SELECT k, v AS v0 FROM {tables}.a) FULL JOIN {dear}"
    engine.create_materialized_view(f"{tables}.dear", dear)
    rows = "SELECT id AS k, id AS v FROM range(300000)"
    engine.spark.sql(f"CREATE TABLE {tables}.many USING iceberg AS {rows}")
    engine.create_materialized_view(f"{tables}.cheap", f"SELECT k FROM {tables}.many WHERE v > 1")
    run(engine, tables, EPOCHS[0])
    engine.spark.sql(f"INSERT INTO {tables}.many VALUES (300001, 2)")
    report = engine.advance().tables
    assert report[f"{tables}.dear"].strategy == "compare"
    assert report[f"{tables}.cheap"].strategy == "rows"
    for name, cheaper in (("dear", True), ("cheap", False)):
        told = report[f"{tables}.{name}"]
        assert (told.estimated_compare < told.estimated_incremental) is cheaper
    assert engine.verify(f"{tables}.dear") == engine.verify(f"{tables}.cheap") == []


def test_over_big_inputs_the_changes_are_tried_before_a_comparison(
    engine, tables, tune, monkeypatch
):
    monkeypatch.setattr(engine.warehouse, "costs", Costs())
    tune(engine, compared_rows=1_000_000, comparing=0.0, untried_rows=100, guarded_rows=0)
    big, name = f"{tables}.big", f"{tables}.v"
    engine.spark.sql(f"CREATE TABLE {big} AS SELECT id AS k, id % 7 AS g FROM range(1000)")
    engine.create_materialized_view(name, f"SELECT g, count(*) AS n FROM {big} GROUP BY g")
    strategies = []
    for key in (1000, 1001):
        engine.spark.sql(f"INSERT INTO {big} VALUES ({key}, 3)")
        strategies.append(engine.advance().tables[name].strategy)
        assert engine.verify(name) == []
    assert strategies == ["fold", "compare"]


def test_a_difference_that_the_driver_cannot_hold_is_written_in_full(engine, tables, tune):
    tune(engine, compared_rows=1_000_000, comparing=0.0, driver_rows=10)
    name = f"{tables}.v"
    query = f"SELECT a.k, b.v FROM {tables}.a CROSS JOIN (SELECT max(v) AS v FROM {tables}.b) b"
    engine.create_materialized_view(name, query)
    engine.spark.sql(f"INSERT INTO {tables}.b VALUES (50, 50)")
    done = engine.advance().tables[name]
    assert (done.mode, done.reason) == ("full", "a comparison found 60 different rows")
    assert engine.verify(name) == []


def test_rows_with_copies_lose_as_many_as_the_query_does(engine, tables, tune):
    tune(engine, compared_rows=1_000_000, comparing=0.0)
    name = f"{tables}.v"
    engine.create_materialized_view(name, f"SELECT v FROM {tables}.a")
    for changes in (
        "DELETE FROM {s}.a WHERE k IN (2, 8, 4)",
        "INSERT INTO {s}.a VALUES (50, 2), (51, 2), (52, 9); DELETE FROM {s}.a WHERE v IS NULL",
        "DELETE FROM {s}.a WHERE k IN (50, 52)",
        "DELETE FROM {s}.a WHERE v = 2",
    ):
        run(engine, tables, changes)
        assert engine.advance().tables[name].strategy == "compare"
        assert engine.verify(name) == []
