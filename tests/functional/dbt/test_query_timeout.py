"""What takes longer than the profile allows is stopped, and its table is as it was."""

from __future__ import annotations

import time

import pytest

pytestmark = pytest.mark.spark

SLOW = "select count(*) as n from range(10000000000000)"
SECONDS = 6
SLOW_PYTHON = f"""
def model(dbt, session):
    dbt.config(materialized='table')
    return session.sql("{SLOW}")
"""


@pytest.fixture
def slow(project):
    """A project whose models were quick once and are not any more, with the time they may take.

    `control` is how many seconds they took when they were quick.
    """
    for kind in ("table", "incremental", "materialized_view"):
        config = f"{{{{ config(materialized='{kind}') }}}} "
        project.write(f"models/a_{kind}.sql", config + "select count(*) as n from range(7)")
        project.write("models/m.yml", "models: [{name: a_table, data_tests: [endless]}]")
    project.write("models/py.py", SLOW_PYTHON.replace(SLOW, "select 7L as n"))
    project.write(
        "tests/generic/endless.sql",
        "{% test endless(model) %} select n from {{ model }} where n < 0 {% endtest %}",
    )
    began = time.monotonic()
    assert project.dbt("build").ok
    project.control = time.monotonic() - began
    warehouse = str(project.root / "warehouse")
    project.profile({"schema": "shop", "warehouse": warehouse, "query_timeout": SECONDS})
    for kind in ("table", "incremental", "materialized_view"):
        config = f"{{{{ config(materialized='{kind}') }}}} "
        project.write(f"models/a_{kind}.sql", config + SLOW)
    project.write("models/py.py", SLOW_PYTHON)
    project.write("models/quick.sql", "{{ config(materialized='table') }} select 1 as id")
    return project


def test_every_kind_of_model_is_stopped_and_the_next_one_is_not(slow):
    before = {table: slow.snapshots(table) for table in ("a_table", "a_incremental", "py")}
    began = time.monotonic()
    done = slow.dbt("run", "--threads", "1")
    # Beside the limits, it takes no longer than these models do when they are quick.
    took, limits = time.monotonic() - began, 4 * SECONDS
    assert took - limits < 10 * slow.control, f"it was waited for: {took} s, {slow.control} s"
    assert done.statuses.pop("quick") == "success"
    assert set(done.statuses.values()) == {"error"}
    for name in ("a_table", "a_incremental", "a_materialized_view", "py"):
        assert "[STREAMSQL.QUERY_TIMEOUT]" in done.messages[name]
        assert f"more than {SECONDS} seconds" in done.messages[name]
        assert slow.sql(f"SELECT n FROM lake.shop.{name}") == [(7,)]
    assert {table: slow.snapshots(table) for table in before} == before


def test_a_test_is_stopped_too(slow):
    slow.write("tests/generic/endless.sql", "{% test endless(model) %} " + SLOW + " {% endtest %}")
    done = slow.dbt("test")
    assert "[STREAMSQL.QUERY_TIMEOUT]" in next(iter(done.messages.values()))


def test_only_whole_seconds_are_understood(project):
    for wrong in (0, -1, 1.5, "10", True):
        project.profile({"schema": "shop", "query_timeout": wrong})
        done = project.dbt("debug")
        assert not done.ok
        assert "`query_timeout` must be a whole number of seconds" in (done.text + done.error)
