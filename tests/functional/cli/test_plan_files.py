"""Plan files in dbt and on the command line: `dbt compile` writes them, a model may run an edited one,
and one that does not fit is refused with the difference (FLIP-292; docs/state_ttl.md)."""

from __future__ import annotations

import json

import pytest

from dbt_streamsql import StreamSqlError
from dbt_streamsql.storage.text_files import read_text, write_text
from tests.support import spark_way
from tests.support.clock import ahead

pytestmark = pytest.mark.spark

TTL = 300
"""Seconds; no test takes as many."""

JOIN = (
    "select o.order_id, o.product, s.status from {{ source('raw', 'orders') }} o "
    "join {{ source('raw', 'shipments') }} s on o.order_id = s.order_id"
)
SOURCES = """
version: 2
sources:
  - name: raw
    database: lake
    schema: raw
    tables: [{name: orders}, {name: shipments}]
"""


def config(**more):
    items = ", ".join(f"{key}={value!r}" for key, value in more.items())
    return f"{{{{ config(materialized='materialized_view', {items}) }}}}\n"


@pytest.fixture
def shop(project):
    """A join whose inputs are kept for seven days."""
    project.write("models/sources.yml", SOURCES)
    project.write("models/tracked.sql", config(state_ttl="7 days") + JOIN)
    assert project.dbt("ls").ok, "the catalog is made"
    project.sql("create namespace if not exists lake.raw")
    for name, column in (("orders", "product"), ("shipments", "status")):
        project.sql(
            f"create table lake.raw.{name} (order_id int, {column} string) "
            "tblproperties ('format-version' = '3')"
        )
    project.sql("insert into lake.raw.orders values (1, 'pen'), (2, 'cup')")
    project.sql("insert into lake.raw.shipments values (1, 'sent')")
    return project


@pytest.fixture
def clock(shop):
    with ahead(shop.host.engine) as made:
        yield made


def plan_of(shop, name="tracked"):
    return json.loads((shop.root / "target" / "plans" / f"{name}.json").read_text())


def states(plan):
    return {
        state["name"]: (node["id"], state["ttl"])
        for node in plan["nodes"]
        for state in node["state"]
    }


def edited(shop, to, *, left=7 * 86400, right):
    """The plan file that `dbt compile` wrote, with other TTLs (seconds)."""
    plan = plan_of(shop)
    for node in plan["nodes"]:
        for state, ttl in zip(node["state"], (left, right), strict=False):
            state["ttl"] = f"{ttl * 1000} ms"
    shop.write(to, json.dumps(plan))


def tracked(shop):
    return sorted(shop.sql("select * from lake.shop.tracked"))


def test_dbt_compile_writes_the_plan_of_every_view_with_the_state_of_each_operator(shop):
    shop.write("models/plain.sql", "{{ config(materialized='table') }} select 1 as one")
    shop.write("models/late.sql", config() + "select * from {{ ref('tracked') }}")
    done = shop.dbt("compile")
    assert done.ok, done.text
    plan = plan_of(shop)
    assert states(plan) == {
        "join-left-state": (1, "604800000 ms"),
        "join-right-state": (1, "604800000 ms"),
    }
    assert plan["nodes"][0]["type"] == "join_1"
    assert not (shop.root / "target/plans/plain.json").exists()
    # What it reads is not built yet.
    assert not (shop.root / "target/plans/late.json").exists()
    assert done.text.count("No plan file for late") == 1
    assert shop.sql("show namespaces in lake") == [("raw",)], "compiling builds nothing"


def test_a_model_runs_the_plan_file_that_its_config_names(shop, clock):
    assert shop.dbt("compile").ok
    edited(shop, "plans/tracked.json", right=TTL)
    # A configuration that seemed another one at the next run would fail it.
    told = config(plan="plans/tracked.json", on_configuration_change="fail")
    shop.write("models/tracked.sql", told + JOIN)
    done = shop.dbt("run")
    assert done.ok, done.messages
    assert tracked(shop) == [(1, "pen", "sent")]
    assert shop.dbt("run").messages["tracked"] == "NOOP"
    clock.jump(TTL + 1)
    shop.sql("insert into lake.raw.orders values (1, 'ink')")
    shop.sql("insert into lake.raw.shipments values (2, 'sent')")
    assert shop.dbt("run").ok
    # The first shipment has expired, the orders are kept for days.
    assert tracked(shop) == [(1, "pen", "sent"), (2, "cup", "sent")]
    told = (shop.root / "target/run/shop/models/tracked.sql").read_text()
    assert "7 days by by_id, 5 minutes by by_id" in told


def test_a_model_stores_what_its_plan_file_says(shop):
    query = (
        "select o.product, x.n from {{ source('raw', 'orders') }} o join (select order_id, "
        "count(*) as n from {{ source('raw', 'shipments') }} group by order_id) x "
        "on x.order_id = o.order_id"
    )
    shop.write("models/tracked.sql", config() + query)
    assert shop.dbt("compile").ok
    plan = plan_of(shop)
    parts = {node["type"]: node for node in plan["nodes"] if "stored" in node}
    assert {part["stored"] for part in parts.values()} == {False}, "they are small"
    parts["group-aggregate_1"]["stored"] = True
    shop.write("plans/tracked.json", json.dumps(plan))
    # A configuration that seemed another one at the next run would fail it.
    told = config(plan="plans/tracked.json", on_configuration_change="fail")
    shop.write("models/tracked.sql", told + query)
    done = shop.dbt("run", "--full-refresh")
    assert done.ok, done.messages
    states = [name for name in shop.tables() if "__streamsql_state_" in name]
    assert len(states) == 1
    assert shop.dbt("run").messages["tracked"] == "NOOP"
    assert tracked(shop) == [("pen", 1)]
    assert shop.dbt("docs", "generate").ok
    stats = shop.json("catalog.json")["nodes"]["model.shop.tracked"]["stats"]
    assert f"lake.shop.{states[0]}: 1 rows, " in stats["state"]["value"]
    assert "read by this view" in stats["state"]["value"]


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        ("plans/gone.json", ["FILE_UNREADABLE", "gone.json"]),
        ("../elsewhere.json", ["PATH_OUTSIDE"]),
        ("dbt_project.yml", ["PLAN_MISMATCH", "not JSON"]),
        ({"a": 1}, ["CONFIG_INVALID", "the path or URI of a plan file"]),
    ],
)
def test_a_plan_file_that_cannot_be_read_fails_its_model(shop, plan, words):
    shop.write("models/tracked.sql", config(plan=plan) + JOIN)
    done = shop.dbt("run")
    assert not done.ok
    for word in words:
        assert word in done.messages["tracked"]
    assert "tracked" not in shop.tables()


def test_a_plan_file_of_another_query_or_another_schema_is_refused_with_the_difference(shop):
    assert shop.dbt("compile").ok
    edited(shop, "plans/tracked.json", right=TTL)
    shop.write(
        "models/tracked.sql", config(plan="plans/tracked.json") + JOIN + " where o.order_id > 1"
    )
    message = shop.dbt("run").messages["tracked"]
    assert "PLAN_MISMATCH" in message
    assert "became" in message
    shop.write("models/tracked.sql", config(plan="plans/tracked.json") + JOIN)
    shop.sql("alter table lake.raw.orders alter column order_id type bigint")
    message = shop.dbt("run").messages["tracked"]
    assert '"bigint"' in message
    assert "tracked" not in shop.tables()


def test_the_command_compiles_explains_compares_validates_and_executes(shop, tmp_path):
    copy = tmp_path / "there" / "tracked.json"
    done = shop.streamsql("plan", "compile", "tracked", "--to", f"file://{copy}")
    assert done.exit_code == 0, done.output
    assert json.loads(copy.read_text()) == plan_of(shop)
    edited(shop, "plans/tracked.json", right=0)
    file = str(shop.root / "plans/tracked.json")

    told = shop.streamsql("plan", "explain", file).stdout
    assert "join-left-state: 7 days, by order_id" in told
    assert "kept for ever: join-right-state of node 1, inner join of 2, by order_id" in told

    assert shop.streamsql("plan", "diff", str(copy), str(copy)).exit_code == 0
    other = shop.streamsql("plan", "diff", str(copy), file)
    assert other.exit_code == 1
    assert other.stdout.strip() == (
        "node 1 (inner join of 2): join-right-state is kept for ever, not 7 days"
    )

    assert shop.streamsql("plan", "validate", file).exit_code == 0
    done = shop.streamsql("plan", "execute", file, "--into", "shop.elsewhere", "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["rows_inserted"] == 1
    assert shop.sql("select * from lake.shop.elsewhere") == [(1, "pen", "sent")]
    assert "tracked" not in shop.tables()

    shop.sql("alter table lake.raw.orders alter column order_id type bigint")
    for verb in ("validate", "execute"):
        refused = shop.streamsql("plan", verb, file)
        assert refused.exit_code == 2
        assert "PLAN_MISMATCH" in refused.stderr


def test_only_one_materialized_view_of_the_project_is_compiled_to_a_file(shop):
    shop.write("models/plain.sql", "{{ config(materialized='table') }} select 1 as one")
    nobody = shop.streamsql("plan", "compile", "nobody")
    assert (nobody.exit_code, "selects 0" in nobody.stderr) == (2, True)
    plain = shop.streamsql("plan", "compile", "plain")
    assert (plain.exit_code, "the model has no plan" in plain.stderr) == (2, True)


def test_a_view_keeps_its_other_options_when_a_plan_is_executed_into_it(shop):
    shop.write("models/tracked.sql", config(state_ttl="7 days", changelog=True) + JOIN)
    assert shop.dbt("run").ok
    engine = shop.host.engine
    plan = engine.compile(
        engine.plan("lake.shop.tracked").sql, into="shop.tracked", state_ttl="1 h"
    )
    assert json.loads(plan.to_json())["nodes"][0]["state"][0]["ttl"] == "3600000 ms"
    engine.execute(plan.to_json())
    known = engine.adapter_api.configuration("lake.shop.tracked")
    assert known["changelog"] is True
    assert set(known["state_ttl"]["by_id"]["1"].values()) == {3600.0}
    assert tracked(shop) == [(1, "pen", "sent")]


def test_explain_says_what_each_ttl_comes_from(shop):
    engine = shop.host.engine
    query = (
        "select /*+ STATE_TTL('s' = '1 d') */ u.product, s.status, t.status as again "
        "from lake.raw.orders u join lake.raw.shipments s on u.order_id = s.order_id "
        "join lake.raw.shipments t on u.order_id = t.order_id"
    )
    told = engine.compile(
        query, state_ttl={"default": "9 d", "joins": {"u": "3 d", "s": "2 d"}}
    ).explain()
    assert "3 days by joins: u, 1 day by hint s, 9 days by default" in told


@pytest.mark.skipif(spark_way.profile() != {}, reason="Hadoop's settings are the server's")
def test_a_plan_lies_in_any_file_system_that_spark_reaches(shop, tmp_path):
    spark = shop.host.spark
    spark.conf.set("fs.viewfs.mounttable.plans.link./here", f"file://{tmp_path}")
    place = "viewfs://plans/here/tracked.json"
    write_text(place, "first", lambda: spark)
    write_text(place, "zwölf\n", lambda: spark)
    assert read_text(place, lambda: spark) == "zwölf\n"
    assert sorted(path.name for path in tmp_path.iterdir() if "tracked" in path.name) == [
        ".tracked.json.crc",
        "tracked.json",
    ]
    with pytest.raises(StreamSqlError, match="FILE_UNREADABLE"):
        read_text("viewfs://plans/here/none.json", lambda: spark)
    with pytest.raises(StreamSqlError, match="FILE_UNREADABLE"):
        write_text("nowhere://plans/here.json", "text", lambda: spark)


def test_dbt_ls_and_dbt_docs_show_how_long_is_remembered(shop, clock, capsys):
    told = config(state_ttl={"joins": {"s": f"{TTL} s"}})
    shop.write("models/tracked.sql", told + JOIN)
    assert shop.dbt("run").ok
    capsys.readouterr()
    assert shop.dbt("ls", "-s", "tracked", "--output", "json", "--output-keys", "config").ok
    assert json.loads(capsys.readouterr().out)["config"]["state_ttl"] == {"joins": {"s": "300 s"}}

    def state_ttl():
        assert shop.dbt("docs", "generate").ok
        return shop.json("catalog.json")["nodes"]["model.shop.tracked"]["stats"]["state_ttl"][
            "value"
        ]

    assert state_ttl() == "join-left-state for ever, join-right-state 5 minutes"
    clock.jump(TTL + 1)
    shop.sql("insert into lake.raw.orders values (1, 'ink')")
    assert shop.dbt("run").ok
    assert state_ttl().endswith("; approximate since barrier 2")
