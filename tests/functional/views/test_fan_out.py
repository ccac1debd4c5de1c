"""One row of an input may change many rows of a view: nobody knows before they are computed."""

from __future__ import annotations

import pytest

from dbt_streamsql.runtime.core import ways
from dbt_streamsql.runtime.core.ways import Costs
from dbt_streamsql.runtime.refresh import choice

pytestmark = [pytest.mark.spark, pytest.mark.hunts]

FACTS, READ_BY_MANY, READ_BY_FEW = 400, 0, 7


@pytest.fixture
def tables(engine, schema, tune, monkeypatch):
    """Facts of which half read the first name and a few read another."""
    tune(engine, guarded_rows=200, driver_rows=20, compared_rows=-1)
    monkeypatch.setattr(engine.warehouse, "costs", Costs())
    # Of tables as small as these, a full refresh is expected to be the cheapest way.
    monkeypatch.setattr(choice, "WORTH", 30.0)
    s = f"lake.{schema}"
    for name, text in (
        ("facts", f"SELECT id AS k, if(id % 2 = 0, 0, id % 101) AS d FROM range({FACTS})"),
        ("names", "SELECT id AS k, concat('n', id) AS t FROM range(101)"),
    ):
        engine.spark.sql(
            f"CREATE TABLE {s}.{name} TBLPROPERTIES ('format-version' = '3') AS {text}"
        )
    return s


def joined(engine, s, name, mode="auto"):
    query = f"SELECT f.k, n.t FROM {s}.facts f JOIN {s}.names n ON f.d = n.k"
    engine.create_materialized_view(f"{s}.{name}", query, refresh_mode=mode)
    return f"{s}.{name}"


def rename(engine, s, key):
    engine.spark.sql(f"UPDATE {s}.names SET t = concat(t, '!') WHERE k = {key}")


def test_a_change_that_meets_many_rows_is_given_up_for_a_full_refresh(engine, tables):
    view = joined(engine, tables, "v")
    for _ in range(2):
        rename(engine, tables, READ_BY_MANY)
        done = engine.advance().tables[view]
        assert (done.mode, done.reason) == (
            "full",
            "its change has more than 100 rows: recomputing is cheaper",
        )
        assert engine.verify(view) == []


@pytest.mark.parametrize("forgotten", [False, True])
def test_what_a_change_met_counts_the_next_times_and_fades(engine, tables, monkeypatch, forgotten):
    monkeypatch.setattr(ways, "ANSWER", 10.0)
    view = joined(engine, tables, "v")
    reasons = []
    for _ in range(12):
        rename(engine, tables, READ_BY_MANY)
        reasons.append(engine.advance().tables[view].reason)
        if forgotten:
            # As in another process.
            monkeypatch.setattr(engine.warehouse, "costs", Costs())
    given_up = ["more than 100 rows" in reason for reason in reasons]
    assert given_up[:2] == [True, False]
    assert "are expected to take" in reasons[1]
    assert any(given_up[2:]), "the changes are tried again some time"
    assert sum(given_up) < len(given_up) / 2
    assert engine.verify(view) == []


@pytest.mark.parametrize(
    ("key", "mode", "rows"),
    [(READ_BY_FEW, "auto", 2), (READ_BY_MANY, "incremental", 202)],
)
def test_a_change_that_meets_few_rows_or_was_asked_for_is_taken_up(
    engine, tables, key, mode, rows
):
    view = joined(engine, tables, "v", mode)
    rename(engine, tables, key)
    done = engine.advance().tables[view]
    assert (done.mode, done.rows_inserted, done.rows_deleted) == ("incremental", rows, rows)
    assert engine.verify(view) == []


def test_rows_that_cancel_are_no_change(engine, tables):
    view = joined(engine, tables, "v")
    rename(engine, tables, READ_BY_FEW)
    engine.spark.sql(f"UPDATE {tables}.names SET t = 'n7' WHERE k = {READ_BY_FEW}")
    engine.spark.sql(f"DELETE FROM {tables}.facts WHERE k = 1")
    done = engine.advance().tables[view]
    assert (done.mode, done.rows_inserted, done.rows_deleted) == ("incremental", 0, 1)
    assert engine.verify(view) == []


def test_for_its_readers_a_view_is_written_anew_later(engine, tables):
    """To them every row would be a new one."""
    view = joined(engine, tables, "v")
    above = f"{tables}.above"
    engine.create_materialized_view(
        above, f"SELECT t, count(*) AS n FROM {view} GROUP BY t", refresh_mode="incremental"
    )
    rename(engine, tables, READ_BY_MANY)
    report = engine.advance().tables
    assert report[view].mode == report[above].mode == "incremental"
    assert engine.verify(view) == engine.verify(above) == []


def add_one(engine, s, key):
    engine.spark.sql(f"INSERT INTO {s}.facts VALUES ({FACTS + key}, {key})")


@pytest.mark.parametrize(("untried", "mode"), [(100, "append"), (1_000_000, "full")])
def test_over_a_big_table_the_changes_are_tried_before_an_estimate_gives_them_up(
    engine, tables, tune, monkeypatch, untried, mode
):
    tune(engine, untried_rows=untried)
    view = joined(engine, tables, "tried")
    monkeypatch.setattr(ways, "STEP", 100.0)
    add_one(engine, tables, 1)
    assert engine.advance().tables[view].mode == mode
    if mode == "append":
        # What they took is known now.
        add_one(engine, tables, 3)
        assert engine.advance().tables[view].mode == mode


def test_over_a_big_table_the_build_says_what_a_full_refresh_takes(
    engine, tables, tune, monkeypatch
):
    tune(engine, untried_rows=100)
    monkeypatch.setattr(engine.warehouse.costs, "cold", 0.0)
    # By the formula alone it would take nearly nothing.
    monkeypatch.setattr(ways, "STATEMENT", 0.01)
    for constant in ("CHARACTER", "ROW", "WRITTEN"):
        monkeypatch.setattr(ways, constant, 1e-9)
    view = joined(engine, tables, "built")
    built = engine.store.latest(view).seconds
    for key in (1, 3):
        add_one(engine, tables, key)
        engine.advance()
    stats = engine.store.latest(view).stats
    assert stats["estimated_full"] == pytest.approx(built, abs=0.01)
