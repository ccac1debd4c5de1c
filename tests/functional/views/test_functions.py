"""SQL functions of a dbt project, in whatever calls them."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.spark

PROPERTIES = """
    functions:
      - name: gross
        description: it's with tax
        arguments:
          - {name: net, data_type: "decimal(10,2)"}
          - {name: rate, data_type: int, default_value: 20}
        returns: {data_type: "decimal(10,2)"}
      - name: spread
        config: {type: aggregate}
        arguments: [{name: price, data_type: "decimal(10,2)"}]
        returns: {data_type: "decimal(10,2)"}
"""
CALL = "select city, {{ function('gross')}}(amount) as g, 'lake.shop.gross(1)' as text"


def write(project, body="select net + net * rate / 100"):
    project.write("functions/gross.sql", body)
    project.write("functions/spread.sql", "max(price) - min(price)")
    project.write("functions/functions.yml", PROPERTIES)
    project.write("seeds/sales.csv", "city,amount\nrome,100\nrome,200\noslo,50\n")


def rows(project, table):
    return sorted(
        (row[0], float(row[1])) for row in project.sql(f"select * from lake.shop.{table}")
    )


def test_views_tables_and_materialized_views_call_functions(project):
    write(project)
    for kind in ("view", "table"):
        project.write(
            f"models/as_{kind}.sql",
            f"{{{{ config(materialized='{kind}') }}}} {CALL} from {{{{ ref('sales') }}}}",
        )
    project.write(
        "models/kept.sql",
        "{{ config(materialized='materialized_view', refresh_mode='incremental_strict') }} "
        "select city, sum({{ function('gross') }}(amount, 10)) as g "
        "from {{ ref('sales') }} group by city",
    )
    project.write(
        "models/spreads.sql",
        "{{ config(materialized='table') }} select city, {{ function('spread') }}(amount) as s "
        "from {{ ref('sales') }} group by city",
    )
    done = project.dbt("build")
    assert done.ok, done.messages
    expected = [("oslo", 60.0), ("rome", 120.0), ("rome", 240.0)]
    assert rows(project, "as_view") == rows(project, "as_table") == expected
    assert {row[2] for row in project.sql("select * from lake.shop.as_view")} == {
        "lake.shop.gross(1)"
    }
    assert rows(project, "kept") == [("oslo", 55.0), ("rome", 330.0)]
    assert rows(project, "spreads") == [("oslo", 0.0), ("rome", 100.0)]
    project.write("seeds/sales.csv", "city,amount\nrome,100\nrome,200\noslo,50\noslo,10\n")
    done = project.dbt("build")
    assert done.ok, done.messages
    assert rows(project, "kept") == [("oslo", 66.0), ("rome", 330.0)]


def test_a_function_that_is_defined_anew_is_used_anew(project):
    write(project)
    project.write("models/t.sql", f"{CALL} from {{{{ ref('sales') }}}} where amount = 50")
    assert project.dbt("build").ok
    write(project, "net * 2 + rate * 0")
    assert project.dbt("build").ok
    assert rows(project, "t") == [("oslo", 100.0)]


@pytest.mark.parametrize(
    ("body", "part"),
    [
        ("net + missing", "missing"),
        ("(select max(net) from shop.sales)", "query in its body"),
        ("sum(net)", "different kind"),
        ("net +", "cannot be read"),
    ],
)
def test_a_function_that_cannot_be_called_is_refused_and_not_kept(project, body, part):
    write(project)
    assert project.dbt("build").ok
    write(project, body)
    failed = project.dbt("build", "--select", "gross")
    assert not failed.ok
    assert part in failed.messages["gross"]
    found = project.host.engine.sql("select lake.shop.gross(10) as g").collect()
    assert [float(row.g) for row in found] == [12.0]


@pytest.mark.parametrize(
    ("call", "part"),
    [("()", "0 arguments"), ("(1, 2, 3)", "3 arguments"), ("(rand())", "volatile")],
)
def test_a_call_that_does_not_fit_the_function_says_why(project, call, part):
    write(project)
    assert project.dbt("build").ok
    failed = project.dbt("show", "--inline", "select {{ function('gross') }}" + call)
    assert not failed.ok
    assert "FUNCTION_INVALID" in failed.text + failed.error
    assert part in failed.text + failed.error


def test_functions_are_not_tables_and_no_model_takes_their_name(project):
    write(project)
    assert project.dbt("build").ok
    assert project.dbt("docs", "generate").ok
    assert {
        node["metadata"]["name"] for node in project.json("catalog.json")["nodes"].values()
    } == {"sales"}
    for kind in ("table", "view", "materialized_view"):
        project.write(
            "models/gross.sql", f"{{{{ config(materialized='{kind}') }}}} select 1 as id"
        )
        clash = project.dbt("run", "--select", "gross")
        assert not clash.ok
        assert "DUPLICATE_WRITER" in clash.messages["gross"]
