"""`streamsql query`, `wait` and `barrier abort`, on a project's own profile."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from dbt_streamsql.adapter.session import host
from dbt_streamsql.cli import main
from dbt_streamsql.errors import StreamSqlError

pytestmark = pytest.mark.spark

VIEW = "{{ config(materialized='materialized_view') }} select "
BOTH = "select n, total from lake.shop.counted, lake.shop.summed"


@pytest.fixture
def shop(project):
    """Two views over one table, of which the second is behind."""
    project.write("seeds/orders.csv", "id,amount\n1,10\n")
    project.write("models/counted.sql", VIEW + "count(*) as n from {{ ref('orders') }}")
    project.write("models/summed.sql", VIEW + "sum(amount) as total from {{ ref('orders') }}")
    assert project.dbt("build").ok
    project.sql("insert into lake.shop.orders values (2, 20)")
    assert project.dbt("run", "-s", "counted").ok
    return project


def wait(project, *arguments):
    done = project.streamsql("wait", *arguments, "--timeout", "1s")
    return done.exit_code, done.output


def test_one_waits_for_a_table_that_holds_all_of_a_barrier(shop):
    """`summed` was left behind by the last run, `counted` was not."""
    last = str(shop.host.engine.store.last_committed())
    assert wait(shop, "--for", "shop.counted", "--barrier", last)[0] == 0
    code, told = wait(shop, "--for", "shop.summed", "--barrier", last)
    assert (code, "CONSISTENCY_UNAVAILABLE" in told, "not up to date" in told) == (2, True, True)
    assert wait(shop, "--for", "shop.summed", "--barrier", str(int(last) - 1))[0] == 2
    assert shop.dbt("run").ok
    assert wait(shop, "--for", "shop.summed", "--barrier", last)[0] == 0
    later = str(int(last) + 5)
    assert wait(shop, "--for", "shop.summed", "--barrier", later)[0] == 2


def test_one_waits_until_the_oldest_change_that_a_table_lacks_is_young_enough(shop):
    assert wait(shop, "--for", "shop.counted", "--lag", "0s")[0] == 0
    code, told = wait(shop, "--for", "shop.summed", "--lag", "0s")
    assert (code, "a lag of" in told) == (2, True)
    assert wait(shop, "--for", "shop.summed", "--lag", "1 hour")[0] == 0
    # A table that was left behind lacks a change that others took up long ago.
    assert shop.host.engine.lag("lake.shop.summed") > 0
    with pytest.raises(StreamSqlError, match="staler"):
        shop.host.engine.sql("select * from lake.shop.summed", max_staleness=0)
    assert shop.dbt("run").ok
    assert wait(shop, "--for", "shop.summed", "--lag", "0s")[0] == 0


@pytest.mark.parametrize(
    "arguments",
    [[], ["--lag", "1s"], ["--barrier", "1", "--lag", "1s"], ["--for", "shop.counted"]],
)
def test_it_must_be_said_what_to_wait_for(shop, arguments):
    code, told = wait(shop, *arguments)
    assert (code, "CONFIG_INVALID" in told) == (2, True)


def test_nobody_waits_for_a_table_that_nobody_maintains(shop):
    for goal in (["--barrier", "1"], ["--lag", "1s"]):
        code, told = wait(shop, "--for", "shop.nowhere", *goal)
        assert (code, "DEFINITION_MISSING" in told) == (2, True)


def rows(project, *arguments):
    done = project.streamsql("query", *arguments, "--json")
    assert done.exit_code == 0, done.output
    return [tuple(json.loads(line).values()) for line in done.stdout.splitlines()]


def test_a_query_reads_one_cut_at_the_level_that_is_asked_for(shop):
    assert rows(shop, BOTH) == [(1, 10)]
    assert rows(shop, BOTH, "-c", "repeatable_read") == [(1, 10)]
    assert rows(shop, BOTH + ";", "-c", "read_uncommitted") == [(2, 10)]
    last = shop.host.engine.store.last_committed()
    assert shop.dbt("run").ok
    assert rows(shop, BOTH) == [(2, 30)]
    assert rows(shop, BOTH, "--barrier", str(last)) == [(1, 10)]
    shown = shop.streamsql(
        "query", "select total, cast(null as int) as gone from lake.shop.summed"
    )
    assert "30" in shown.stdout
    assert "NULL" in shown.stdout


def test_what_cannot_be_answered_is_told_with_exit_code_2(shop):
    for arguments, told in (
        ((BOTH, "--max-staleness", "0 seconds"), "CONSISTENCY_UNAVAILABLE"),
        ((BOTH, "--max-staleness", "soon"), "CONFIG_INVALID"),
        ((BOTH, "--barrier", "999"), "META_CONFLICT"),
        (("select * from lake.shop.nowhere",), "nowhere"),
    ):
        done = shop.streamsql("query", *arguments)
        assert done.exit_code == 2, done.output
        assert told in done.stderr
        assert "Traceback" not in done.output


def test_waiting_ends_with_the_barrier_or_with_its_time(shop):
    last = shop.host.engine.store.last_committed()
    done = shop.streamsql("wait", "--barrier", str(last))
    assert done.stdout == f"barrier {last} is published\n"
    late = shop.streamsql("wait", "--barrier", str(last + 1), "--timeout", "0.3")
    assert late.exit_code == 2
    assert "CONSISTENCY_UNAVAILABLE" in late.stderr


def test_a_run_that_was_held_back_can_be_given_up(shop):
    shop.write("tests/never.sql", "select 1 from {{ ref('summed') }}")
    assert not shop.dbt("build", "--exclude", "orders").ok
    store = shop.host.engine.store
    held = store.unfinished()[0].id
    assert rows(shop, "select total from lake.shop.summed", "-c", "read_uncommitted") == [(30,)]
    listed = json.loads(shop.streamsql("barrier", "show", str(held), "--json").stdout)
    assert listed["summary"]["state"] == "OPEN"
    wrong = shop.streamsql("barrier", "abort", str(held + 1))
    assert wrong.exit_code == 2
    assert f"barrier {held}" in wrong.stderr
    done = shop.streamsql("barrier", "abort", str(held))
    assert done.exit_code == 0, done.output
    assert store.unfinished() == []
    assert shop.host.engine.sweep() == 0
    assert rows(shop, "select total from lake.shop.summed", "-c", "read_uncommitted") == [(10,)]


def test_a_slow_start_of_spark_is_told_beside_the_json_and_not_in_it(tmp_path, monkeypatch):
    monkeypatch.setattr(host, "SLOW_SECONDS", 0.0)
    sql = ["query", "select 1 as n", "--json", "--warehouse", str(tmp_path)]
    done = CliRunner().invoke(main, sql)
    assert done.exit_code == 0, done.stderr
    assert [json.loads(line) for line in done.stdout.splitlines()] == [{"n": 1}]
    assert "Spark (embedded) has not started after 0 s" in done.stderr
