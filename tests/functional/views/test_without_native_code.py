"""A refresh that native code fails runs again from its start, whatever it had done by then."""

from __future__ import annotations

import pytest
from pyspark.errors import PySparkException

from dbt_streamsql.runtime.write import change_feed, driver_writer

pytestmark = pytest.mark.spark

FAILURE = "Job aborted: org.apache.comet.CometNativeException: no memory"


@pytest.fixture
def native(engine):
    """Comet is not there, but the sessions say that it is on."""
    engine.spark.conf.set("spark.comet.enabled", "true")
    yield
    engine.spark.conf.unset("spark.comet.enabled")


@pytest.mark.parametrize(
    ("room", "step", "after"),
    [(change_feed, "write", True), (driver_writer, "fold", True), (driver_writer, "fold", False)],
    ids=["its feed is written", "its rows are written", "nothing is written"],
)
def test_a_view_and_its_reader_are_right_after_a_failure(
    engine, schema, native, monkeypatch, room, step, after
):
    spark, base = engine.spark, f"lake.{schema}.t"
    spark.sql(f"CREATE TABLE {base} AS SELECT id, id % 5 AS g FROM range(100)")
    view, reader = f"lake.{schema}.v", f"lake.{schema}.r"
    engine.create_materialized_view(
        view, f"SELECT g, count(*) AS n FROM {base} GROUP BY g", refresh_mode="incremental_strict"
    )
    engine.create_materialized_view(
        reader, f"SELECT sum(n) AS total FROM {view}", refresh_mode="incremental_strict"
    )
    inner, failures, registered = getattr(room, step), [], []

    def failing(*args, **kwargs):
        found = inner(*args, **kwargs) if after or failures else None
        if not failures:
            failures.append(step)
            raise PySparkException(FAILURE)
        if room is change_feed:
            registered.append(len(engine.store.change_files(view, 0, 1 << 40)))
        return found

    monkeypatch.setattr(room, step, failing)
    spark.sql(f"INSERT INTO {base} VALUES (100, 1), (101, 2)")
    spark.sql(f"DELETE FROM {base} WHERE id = 3")
    report = engine.advance().tables
    assert failures == [step]
    assert set(registered) <= {1}, "the change that was written first is gone"
    assert report[view].mode == report[reader].mode == "incremental"
    assert engine.sql(f"SELECT total FROM {reader}").first()[0] == 101
    assert engine.verify(view) == engine.verify(reader) == []
