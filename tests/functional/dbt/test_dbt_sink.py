"""Sinks in a dbt project, into a real PostgreSQL."""

from __future__ import annotations

import json
import signal

import pytest

from tests.support import postgres as server_of
from tests.support.dbt_processes import DBT, DBT_THAT_DIES, run
from tests.support.followed_postgres import connected

pytestmark = [pytest.mark.spark, pytest.mark.processes]

ORDERS = """
    {{ config(materialized='incremental') }}
    select * from {{ ref('new_orders') }}
"""
TOTALS = """
    {{ config(materialized='materialized_view') }}
    select city, count(*) as orders, sum(amount) as amount from {{ ref('orders') }} group by city
"""
OUT = """
    {{ config(
        materialized='sink',
        target={'connector': 'postgres', 'options': {'table': 'totals'}},
        connection='shop_db',
        key='city',
    ) }}
    select city, orders, amount from {{ ref('totals') }} where city <> 'nowhere'
"""


@pytest.fixture
def shop(project, port, database, monkeypatch):
    monkeypatch.setenv("DBT_ENV_SECRET_DB", server_of.PASSWORD)
    connection = {
        "host": "127.0.0.1",
        "port": port,
        "database": database,
        "user": "postgres",
        "password": "{{ env_var('DBT_ENV_SECRET_DB') }}",
    }
    project.profile({"schema": "shop", "threads": 2, "connections": {"shop_db": connection}})
    project.write("models/orders.sql", ORDERS)
    project.write("models/totals.sql", TOTALS)
    project.write("models/out.sql", OUT)
    seed(project, "rome,1", "rome,2", "oslo,3", "nowhere,1")
    return project


def seed(project, *rows):
    project.write("seeds/new_orders.csv", "\n".join(["city,amount", *rows]) + "\n")


def totals(sql):
    return sql("SELECT city, orders, amount FROM totals ORDER BY 1").fetchall()


def test_every_run_delivers_what_it_publishes(shop, sql):
    done = shop.dbt("build")
    assert done.ok, done.messages
    assert totals(sql) == [("oslo", 1, 3), ("rome", 2, 3)]
    assert "out" not in shop.tables()
    seed(shop, "rome,5", "bern,1")
    done = shop.dbt("build")
    assert done.ok, done.messages
    assert "DELIVERED" in done.messages["out"]
    assert totals(sql) == [("bern", 1, 1), ("oslo", 1, 3), ("rome", 3, 8)]
    listed = json.loads(shop.streamsql("sinks", "--json").output)
    assert [(sink["name"], sink["problem"]) for sink in listed] == [("lake.shop.out", "")]
    assert "lake.shop.out" in shop.streamsql("topology").output
    assert server_of.PASSWORD not in shop.streamsql("sinks", "--json").output


def test_a_database_that_is_down_fails_its_node_and_holds_nothing_back(shop, sql, port, database):
    assert shop.dbt("build").ok
    seed(shop, "bern,1")
    with connected(port, "postgres") as admin:
        admin.execute(f"ALTER DATABASE {database} ALLOW_CONNECTIONS false")
        try:
            # The first run finds out when it publishes, the second one in the node itself.
            shop.dbt("build")
            done = shop.dbt("build")
        finally:
            admin.execute(f"ALTER DATABASE {database} ALLOW_CONNECTIONS true")
    assert not done.ok
    assert done.statuses["out"] == "error"
    assert "SINK_UNREACHABLE" in done.messages["out"]
    assert server_of.PASSWORD not in done.text + str(done.messages)
    assert shop.sql("select orders from lake.shop.totals where city = 'bern'") == [(2,)]
    seed(shop, "bern,1")
    assert shop.dbt("build").ok
    assert ("bern", 3, 3) in totals(sql)


def test_a_run_that_is_held_back_delivers_nothing(shop, sql):
    assert shop.dbt("build").ok
    before = totals(sql)
    seed(shop, "bern,1")
    shop.write("tests/fails.sql", "select * from {{ ref('totals') }}")
    assert not shop.dbt("build").ok
    assert totals(sql) == before
    shop.remove("tests/fails.sql")
    seed(shop, "bern,1")
    assert shop.dbt("build").ok
    assert ("bern", 2, 2) in totals(sql)


def test_everything_wrong_with_the_config_is_told_at_once(shop):
    wrong = OUT.replace("key='city'", "key=3, colour='red', refresh_mode='full'")
    shop.write("models/out.sql", wrong.replace("'options'", "'opts'"))
    done = shop.dbt("build")
    assert not done.ok
    for what in ("`key`", "`colour`", "`refresh_mode`", "`opts`"):
        assert what in done.messages["out"]
    shop.write("models/out.sql", OUT.replace("ref('totals')", "ref('orders')"))
    assert "DEFINITION_MISSING" in shop.dbt("build").messages["out"]


def test_a_sink_that_is_dropped_is_given_nothing_more(shop, sql):
    assert shop.dbt("build").ok
    shop.remove("models/out.sql")
    assert shop.streamsql("sinks", "--drop", "lake.shop.out").exit_code == 0
    before = totals(sql)
    seed(shop, "bern,1")
    assert shop.dbt("build").ok
    assert totals(sql) == before
    assert shop.streamsql("sinks", "--drop", "lake.shop.out").exit_code == 2


def test_a_process_that_is_killed_leaves_each_change_there_once(shop, sql):
    code, output = run(shop, "-c", DBT, "build")
    assert code == 0, output
    total = 6
    for number, step in enumerate(("barrier.commit", "sink.write", "sink.publish")):
        seed(shop, f"bern,{number + 1}")
        total += number + 1
        code, output = run(shop, "-c", DBT_THAT_DIES + DBT, step, "build")
        assert code == -signal.SIGKILL, output
    seed(shop, "bern,100")
    code, output = run(shop, "-c", DBT, "build")
    assert code == 0, output
    found = {row[0]: row[1:] for row in totals(sql)}
    assert found["bern"] == (4, 106)
    assert sum(amount for _, amount in found.values()) == total + 100
