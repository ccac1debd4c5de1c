"""Materialized views in dbt: one run is one barrier, and later runs follow the changes."""

from __future__ import annotations

import json

import pytest

pytestmark = pytest.mark.spark

VIEW = "{{ config(materialized='materialized_view') }} "
ORDERS = "id,user_id,amount\n1,10,5\n2,11,7\n3,10,1\n"


@pytest.fixture
def shop(project):
    project.write("seeds/orders.csv", ORDERS)
    project.write(
        "models/totals.sql",
        VIEW + "select user_id, sum(amount) as amount, count(*) as n "
        "from {{ ref('orders') }} group by user_id",
    )
    project.write(
        "models/big.sql", VIEW + "select user_id, amount from {{ ref('totals') }} where amount > 6"
    )
    project.write(
        "models/models.yml",
        """
        models:
          - name: totals
            columns: [{name: user_id, data_tests: [unique, not_null]}]
          - name: big
            columns: [{name: user_id, data_tests: [unique]}]
        """,
    )
    return project


def _totals(project):
    return project.sql("SELECT user_id, amount, n FROM lake.shop.totals ORDER BY user_id")


def test_a_build_makes_the_views_and_the_next_run_follows_the_changes(shop):
    built = shop.dbt("build")
    assert built.ok, built.messages
    assert built.messages["totals"].startswith("FULL +2 -0")
    assert _totals(shop) == [(10, 6, 2), (11, 7, 1)]
    again = shop.dbt("run")
    assert (again.messages["totals"], again.messages["big"]) == ("NOOP", "NOOP")
    shop.sql("INSERT INTO lake.shop.orders VALUES (4, 10, 9)")
    changed = shop.dbt("build", "--exclude", "orders")
    assert changed.ok, changed.messages
    assert changed.messages["totals"].startswith("INCREMENTAL +1 -1 (")
    assert _totals(shop) == [(10, 15, 3), (11, 7, 1)]
    assert shop.sql("SELECT count(*) FROM lake.shop.big") == [(2,)]
    assert shop.host.engine.verify("lake.shop.totals") == []
    assert not shop.host.engine.epochs.is_open


def test_data_tests_of_a_build_read_the_version_that_is_not_published_yet(shop):
    assert shop.dbt("build").ok
    shop.sql("INSERT INTO lake.shop.orders VALUES (5, NULL, 1)")
    done = shop.dbt("build", "--exclude", "orders")
    assert not done.ok
    assert done.statuses["not_null_totals_user_id"] == "fail"


def test_tables_and_views_of_the_same_run_see_its_materialized_views(shop):
    shop.write(
        "models/t.sql",
        "{{ config(materialized='table') }} select user_id, n from {{ ref('totals') }}",
    )
    shop.write("models/v.sql", "select user_id, n from {{ ref('totals') }}")
    shop.write("models/after.sql", VIEW + "select sum(n) as n from {{ ref('t') }}")
    done = shop.dbt("build")
    assert done.ok, done.messages
    for name in ("t", "v"):
        assert shop.sql(f"SELECT sum(n) FROM lake.shop.{name}") == [(3,)]
    assert shop.sql("SELECT n FROM lake.shop.after") == [(3,)]


def test_what_was_built_can_be_published_although_another_model_failed(shop):
    shop.write("models/bad.sql", VIEW + "select user_id from {{ ref('nowhere') }}")
    shop.write("seeds/nowhere.csv", "id\n1\n")
    done = shop.dbt("build", "--vars", "publish: passed_subgraph")
    assert not done.ok
    assert done.statuses["bad"] == "error"
    assert _totals(shop) == [(10, 6, 2), (11, 7, 1)]


def test_a_failing_publication_fails_the_command_and_the_next_run_repairs_it(shop, monkeypatch):
    assert shop.dbt("seed").ok
    engine = type(shop.host.engine)

    def broken(self):
        self.abort()
        raise RuntimeError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(engine, "publish", broken)
        done = shop.dbt("run")
    assert not done.ok
    assert "the disk is full" in done.error
    assert shop.tables() == {"orders"}
    assert shop.dbt("run").ok
    assert _totals(shop) == [(10, 6, 2), (11, 7, 1)]


def test_a_model_may_become_a_materialized_view_and_something_else_again(project):
    project.write("seeds/orders.csv", ORDERS)
    assert project.dbt("seed").ok
    query = "select user_id, count(*) as n from {{ ref('orders') }} group by user_id"
    view = "materialized_view"
    for kind in ("table", view, "view", view, "incremental", view, "table"):
        project.write("models/m.sql", f"{{{{ config(materialized='{kind}') }}}} {query}")
        done = project.dbt("run")
        assert done.ok, (kind, done.messages, done.error)
        found = project.sql("SELECT user_id, n FROM lake.shop.m ORDER BY user_id")
        assert found == [(10, 2), (11, 1)], kind
        assert project.host.engine.queries.knows("lake.shop.m") == (kind == view)


@pytest.mark.parametrize("version", [2, 3])
def test_a_table_that_becomes_a_materialized_view_stays_until_the_view_is_published(
    project, version
):
    project.write("seeds/orders.csv", ORDERS)
    query = "select user_id, count(*) as n from {{ ref('orders') }} group by user_id"
    config = "{{ config(materialized='incremental', unique_key='user_id', partition_by='n') }} "
    project.write("models/m.sql", config + query)
    project.write("models/read.sql", VIEW + "select sum(n) as n from {{ ref('m') }}")
    assert project.dbt("build").ok
    if version == 2:
        # As other programs make them.
        project.sql("DROP TABLE lake.shop.m")
        project.sql(
            "CREATE TABLE lake.shop.m USING iceberg PARTITIONED BY (n) TBLPROPERTIES "
            "('format-version' = '2') AS SELECT user_id, count(*) AS n FROM lake.shop.orders "
            "GROUP BY user_id"
        )
    project.sql("INSERT INTO lake.shop.m VALUES (99, 9)")

    for broken in (query.replace("count(*)", "nothing"), query):
        project.write("models/m.sql", VIEW + broken)
        project.write("models/fails.sql", VIEW + "select n, 1 / 0 as x from {{ ref('m') }}")
        assert not project.dbt("run").ok
        found = project.sql("SELECT user_id, n FROM lake.shop.m ORDER BY user_id")
        assert found == [(10, 2), (11, 1), (99, 9)]
        assert project.sql("SELECT name FROM lake.shop.m.refs WHERE type = 'BRANCH'") == [
            ("main",)
        ]

    (project.root / "models/fails.sql").unlink()
    done = project.dbt("run")
    assert done.ok, done.messages
    assert done.messages["m"].startswith("FULL +2 -3")
    assert project.sql("SELECT user_id, n FROM lake.shop.m ORDER BY user_id") == [(10, 2), (11, 1)]
    assert project.sql("SELECT n FROM lake.shop.read") == [(3,)]
    told = "\n".join(str(row) for row in project.sql("SHOW CREATE TABLE lake.shop.m"))
    assert "PARTITIONED BY" not in told
    assert "'format-version' = '3'" in told
    assert project.dbt("run").messages == {"m": "NOOP", "read": "NOOP"}
    project.sql("INSERT INTO lake.shop.orders SELECT * FROM lake.shop.orders LIMIT 1")
    assert project.dbt("run").messages["m"].startswith("INCREMENTAL +1 -1")


def test_full_refresh_rebuilds(shop):
    assert shop.dbt("build").ok
    done = shop.dbt("run", "--full-refresh", "-s", "totals")
    assert done.messages["totals"].startswith("FULL +2 -2")


def test_a_run_after_a_full_refresh_has_nothing_to_do(shop):
    assert shop.dbt("build").ok
    assert shop.dbt("run", "--full-refresh", "-s", "totals").ok
    assert shop.dbt("run", "-s", "totals").messages["totals"] == "NOOP"


def test_a_view_on_a_missing_table_is_refused_and_nothing_is_made(project):
    project.write("models/m.sql", VIEW + "select id from lake.shop.nowhere")
    done = project.dbt("run")
    assert "[STREAMSQL.TABLE_MISSING]" in done.messages["m"]
    assert project.tables() == set()


def test_every_other_materialization_reads_what_the_same_run_has_staged(shop):
    shop.profile({"schema": "shop", "threads": 4})
    shop.write(
        "models/merged.sql",
        "{{ config(materialized='incremental', incremental_strategy='merge',"
        " unique_key='user_id') }} select user_id, n from {{ ref('totals') }}",
    )
    shop.write("models/after.sql", VIEW + "select sum(n) as n from {{ ref('merged') }}")
    shop.write(
        "models/promised.sql",
        "{{ config(materialized='table') }} select user_id, n from {{ ref('totals') }}",
    )
    shop.write(
        "models/promised.yml",
        """
        models:
          - name: promised
            config: {contract: {enforced: true}}
            columns: [{name: user_id, data_type: bigint}, {name: n, data_type: bigint}]
        """,
    )
    shop.write(
        "snapshots/past.sql",
        """
        {% snapshot past %}
        {{ config(strategy='check', unique_key='user_id', check_cols=['n'],
                  file_format='iceberg') }}
        select user_id, n from {{ ref('totals') }}
        {% endsnapshot %}
        """,
    )
    for added, total in (("", 3), ("4,10,9\n", 4)):
        shop.write("seeds/orders.csv", ORDERS + added)
        done = shop.dbt("build")
        assert done.ok, (done.messages, done.error)
        for table in ("merged", "promised"):
            assert shop.sql(f"SELECT sum(n) FROM lake.shop.{table}") == [(total,)]
        assert shop.sql("SELECT n FROM lake.shop.after") == [(total,)]
    assert shop.sql("SELECT count(*) FROM lake.shop.past") == [(3,)]


def _explained(shop, query, capsys):
    inline = "{{ streamsql_explain(" + query + ") }}"
    shown = shop.dbt("show", "--limit", "99", "--output", "json", "--inline", inline)
    assert shown.ok, shown.text + shown.error
    printed = capsys.readouterr().out
    return json.loads(printed[printed.index('{\n  "show"') :])["show"]


def test_show_explains_how_a_view_is_kept_operator_by_operator(shop, capsys):
    assert shop.dbt("build").ok
    rows = _explained(shop, "ref('totals')", capsys)
    assert rows[0]["operator"].startswith("incremental, upsert by (user_id)")
    assert [row["operator"].strip() for row in rows[1:]][-1] == "scan lake.shop.orders"
    grouped = next(row for row in rows if row["operator"].strip().startswith("group"))
    assert (grouped["changelog"], grouped["key"]) == ("upsert", "user_id")
    assert "last run:" in rows[0]["strategy"]


def test_show_explains_a_query_that_no_model_has_and_says_why_it_runs_in_full(shop, capsys):
    assert shop.dbt("seed").ok
    rows = _explained(shop, "'select id, rand() as r from ' ~ ref('orders')", capsys)
    assert len(rows) == 1
    assert rows[0]["operator"].startswith("full refresh")
    assert "rand" in rows[0]["strategy"]


def test_explaining_a_table_that_is_no_view_says_so(shop):
    assert shop.dbt("seed").ok
    done = shop.dbt("show", "--inline", "{{ streamsql_explain(ref('orders')) }}")
    assert not done.ok
    assert "is not a materialized view" in done.text + done.error


def _result(project, name):
    found = {
        r["unique_id"]: r["adapter_response"] for r in project.json("run_results.json")["results"]
    }
    return found[f"model.shop.{name}"]


def test_an_edited_model_takes_effect_on_a_plain_run_and_the_run_says_how(shop):
    """A column at the end, a condition, and a column of the source, while the source changes."""
    assert shop.dbt("build").ok
    columns = "user_id, sum(amount) as amount, count(*) as n"
    edits = [
        (f"{columns}, sum(amount) - count(*) as m", "", "INCREMENTAL", "append a column"),
        (columns, " having count(*) > 1", "INCREMENTAL", "compatible state"),
        (columns, " having 1 < count(*) and max(id) > 3", "FULL", "shadow rebuild"),
    ]
    for number, (shown, having, mode, verdict) in enumerate(edits):
        shop.sql(f"INSERT INTO lake.shop.orders VALUES ({number + 4}, 12, 9)")
        query = f"select {shown} from {{{{ ref('orders') }}}} group by user_id{having}"
        shop.write("models/totals.sql", VIEW + query)
        done = shop.dbt("run", "--select", "totals")
        assert done.ok, (done.messages, done.error)
        message = done.messages["totals"]
        assert message.startswith(mode), message
        response = _result(shop, "totals")
        assert response["definition"] == verdict
        assert message.endswith(f"s): {verdict}: {response['reason']}")
        assert shop.host.engine.verify("lake.shop.totals") == []
    assert shop.dbt("run", "--select", "totals").messages["totals"] == "NOOP"


def test_a_changed_config_is_refused_or_left_alone_and_the_query_is_planned(shop):
    assert shop.dbt("build").ok
    config = "materialized='materialized_view', refresh_mode='full', on_configuration_change='{}'"
    query = "select user_id, count(*) as n from {{ ref('orders') }} group by user_id"
    for reaction, mode in (("fail", "auto"), ("continue", "auto"), ("apply", "full")):
        text = f"{{{{ config({config.format(reaction)}) }}}} {query}"
        shop.write("models/totals.sql", text)
        done = shop.dbt("run", "--select", "totals")
        assert done.ok is (reaction != "fail"), (reaction, done.messages)
        engine = shop.host.engine
        assert engine.adapter_api.configuration("lake.shop.totals")["refresh_mode"] == mode
        if reaction == "fail":
            assert _totals(shop) == [(10, 6, 2), (11, 7, 1)]
            continue
        verdict = {"continue": "compatible state", "apply": "shadow rebuild"}[reaction]
        assert _result(shop, "totals")["definition"] == verdict
        assert engine.verify("lake.shop.totals") == []
