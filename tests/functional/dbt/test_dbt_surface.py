"""`dbt debug`, `seed`, `table`, `view`, `docs` and refusals, as a user meets them."""

from __future__ import annotations

import pytest

from dbt_streamsql.adapter.session import host

pytestmark = pytest.mark.spark

ORDERS = """\
id,user_id,amount,at,ok,note,zip
1,10,1.50,2024-01-01,true,it's `quoted`,01234
2,11,2.25,2024-01-02,false,"back\\slash",00001
3,10,3,2024-01-03,,,
"""


def _with_orders(project):
    project.write("seeds/orders.csv", ORDERS)
    project.write(
        "seeds/seeds.yml",
        """
        seeds:
          - name: orders
            config: {column_types: {zip: string, amount: "decimal(10,2)"}}
        """,
    )


def test_debug_shows_every_part_that_a_run_needs(project):
    done = project.dbt("debug")
    assert done.ok, done.text
    for part in ("java: ", "jars: 3 in ", "session: Spark 4.1", "catalog: lake", "meta: sqlite"):
        assert part in done.text
    assert (project.root / "warehouse" / "catalog.db").is_file()
    assert list((project.root / "warehouse").glob("*debug*")) == []


def test_git_ignores_a_warehouse_that_the_adapter_has_made(project):
    assert project.dbt("debug").ok
    assert (project.root / "warehouse" / ".gitignore").read_text() == "*\n"


def test_a_slow_start_of_spark_is_told_in_the_log(project, monkeypatch):
    assert "has not started" not in project.dbt("debug").text
    monkeypatch.setattr(host, "SLOW_SECONDS", 0.0)
    project.profile({"schema": "shop", "warehouse": str(project.root / "other")})
    told = project.dbt("debug").text
    assert "Spark (embedded) has not started after 0 s" in told
    assert "Spark started after" in told


def test_a_delta_table_without_delta_in_spark_says_what_to_do(project):
    config = "materialized='table', file_format='delta'"
    project.write("models/t.sql", f"{{{{ config({config}) }}}} select 1 as id")
    done = project.dbt("run")
    assert not done.ok
    assert "ATOMIC_UNSUPPORTED" in done.messages["t"]
    assert "spark_properties" in done.messages["t"]


def test_debug_says_what_to_do_about_a_store_that_cannot_be_opened(project):
    project.profile({"schema": "shop", "meta": "sqlite:////proc/no/such/folder.db"})
    done = project.dbt("debug")
    assert not done.ok
    assert "META_UNREACHABLE" in done.text or "/proc/no" in done.text


def test_a_seed_is_typed_and_exact_and_its_reload_keeps_the_history(project):
    _with_orders(project)
    assert project.dbt("seed").messages == {"orders": "INSERT 3"}
    types = dict(row[:2] for row in project.sql("DESCRIBE lake.shop.orders"))
    assert types["amount"] == "decimal(10,2)"
    assert (types["id"], types["at"], types["ok"]) == ("bigint", "date", "boolean")
    notes = project.sql("SELECT note, zip FROM lake.shop.orders ORDER BY id")
    assert notes == [("it's `quoted`", "01234"), ("back\\slash", "00001"), (None, None)]
    project.write("seeds/orders.csv", ORDERS + "4,12,9.99,2024-02-01,true,,\n")
    assert project.dbt("seed").ok
    assert project.sql("SELECT count(*) FROM lake.shop.orders") == [(4,)]
    assert project.snapshots("orders") == 2


def test_a_seed_is_written_again_only_when_it_or_its_table_has_changed(project):
    _with_orders(project)
    project.write(
        "models/by_day.sql",
        "{{ config(materialized='materialized_view') }}"
        " select at, count(*) as n from {{ ref('orders') }} group by at",
    )

    def built(*options: str) -> str:
        done = project.dbt("build", *options)
        assert done.ok, done.messages
        return done.messages["orders"]

    assert built() == "INSERT 3"
    assert built() == "UNCHANGED 3"
    assert project.snapshots("orders") == 1
    assert built("--full-refresh") == "CREATE 3"
    for change in (
        "DELETE FROM lake.shop.orders WHERE id = 1",
        "ALTER TABLE lake.shop.orders RENAME COLUMN note TO remark",
        "ALTER TABLE lake.shop.orders ADD COLUMN more INT",
    ):
        project.sql(change)
        assert built() == "INSERT 3", change
        assert built() == "UNCHANGED 3", change
        names = [row[0] for row in project.sql("DESCRIBE lake.shop.orders")]
        assert "note" in names
        assert "more" not in names
    file = project.root / "seeds" / "seeds.yml"
    typed = file.read_text()
    for form in ("orc", "avro"):
        more = f"tblproperties: {{write.format.default: {form}}}, column_types"
        file.write_text(typed.replace("column_types", more))
        assert built() == "INSERT 3", form
        assert built() == "UNCHANGED 3", form
    project.sql("ALTER TABLE lake.shop.orders SET TBLPROPERTIES ('write.format.default' = 'orc')")
    assert built() == "INSERT 3"
    assert project.sql("SELECT sum(n) FROM lake.shop.by_day") == [(3,)]


def test_a_seed_whose_first_load_left_a_part_of_it_is_loaded_again(project):
    _with_orders(project)
    file = project.root / "seeds" / "seeds.yml"
    file.write_text(file.read_text().replace("column_types", "atomic: false, column_types"))
    project.write("seeds/orders.csv", ORDERS.replace("1.50", "a lot"))
    assert not project.dbt("seed").ok
    project.write("seeds/orders.csv", ORDERS)
    assert project.dbt("seed").messages == {"orders": "INSERT 3"}
    assert project.dbt("seed").messages == {"orders": "INSERT 3"}


def test_a_seed_and_a_python_model_may_have_no_rows(project):
    project.write("seeds/nothing.csv", "id,name\n")
    project.write(
        "models/none.py",
        """
        import pandas as pd


        def model(dbt, session):
            dbt.config(materialized="table")
            return pd.DataFrame({"id": [1], "score": [1.5]}).iloc[:0]
        """,
    )
    done = project.dbt("build")
    assert done.ok, done.messages
    assert project.sql("SELECT * FROM lake.shop.nothing") == []
    types = dict(row[:2] for row in project.sql("DESCRIBE lake.shop.none"))
    assert types == {"id": "bigint", "score": "double"}


def test_a_seed_that_does_not_fit_its_type_leaves_the_old_rows(project):
    _with_orders(project)
    assert project.dbt("seed").ok
    project.write("seeds/orders.csv", ORDERS.replace("1.50", "a lot"))
    done = project.dbt("seed")
    assert done.statuses == {"orders": "error"}
    assert "CAST_INVALID_INPUT" in done.messages["orders"]
    assert project.sql("SELECT count(*) FROM lake.shop.orders") == [(3,)]


def test_a_table_whose_query_fails_stays_as_it_was(project):
    project.write("models/t.sql", "{{ config(materialized='table') }} select 1 as id")
    assert project.dbt("run").ok
    project.write("models/t.sql", "{{ config(materialized='table') }} select 1 / 0 as id")
    done = project.dbt("run")
    assert not done.ok
    assert "DIVIDE_BY_ZERO" in done.messages["t"]
    assert "\tat org." not in done.messages["t"]
    assert project.sql("SELECT id FROM lake.shop.t") == [(1,)]
    assert project.snapshots("t") == 1


def test_a_model_may_change_between_table_and_view_and_back(project):
    for materialized, value in (("table", 1), ("view", 2), ("table", 3)):
        text = f"{{{{ config(materialized='{materialized}') }}}} select {value} as id"
        project.write("models/m.sql", text)
        done = project.dbt("run")
        assert done.ok, done.messages
        assert project.sql("SELECT id FROM lake.shop.m") == [(value,)]
        assert project.tables() == {"m"}


def test_a_failing_switch_of_kind_leaves_the_old_relation(project):
    project.write("models/m.sql", "{{ config(materialized='view') }} select 1 as id")
    assert project.dbt("run").ok
    project.write("models/m.sql", "{{ config(materialized='table') }} select 1 / 0 as id")
    assert not project.dbt("run").ok
    assert project.sql("SELECT id FROM lake.shop.m") == [(1,)]


def test_texts_in_properties_and_comments_are_only_texts(project):
    project.write(
        "models/m.sql",
        """
        {{ config(materialized='table', persist_docs={'relation': true, 'columns': true},
                  tblproperties={"it's": "a\\\\' b"}) }}
        select 1 as `select`, 2 as b
        """,
    )
    project.write(
        "models/m.yml",
        r"""
        models:
          - name: m
            description: "it's \\' ) as select 'x"
            columns: [{name: select, description: "a \\ and a '"}]
        """,
    )
    done = project.dbt("run")
    assert done.ok, done.messages
    described = {row[0]: row for row in project.sql("DESCRIBE EXTENDED lake.shop.m")}
    assert described["Comment"][1] == "it's \\' ) as select 'x"
    assert described["select"][2] == "a \\ and a '"
    properties = dict(project.sql("SHOW TBLPROPERTIES lake.shop.m"))
    assert properties["it's"] == "a\\' b"
    assert properties["format-version"] == "3"


def test_docs_list_every_column_with_its_type(project):
    _with_orders(project)
    project.write("models/v.sql", "select id, amount from {{ ref('orders') }}")
    assert project.dbt("seed").ok
    assert project.dbt("run").ok
    assert project.dbt("docs", "generate").ok
    catalog = project.json("catalog.json")
    assert catalog["errors"] is None
    seed, view = catalog["nodes"]["seed.shop.orders"], catalog["nodes"]["model.shop.v"]
    assert (seed["metadata"]["database"], seed["metadata"]["type"]) == ("lake", "table")
    assert seed["columns"]["amount"]["type"] == "decimal(10,2)"
    assert (view["metadata"]["type"], list(view["columns"])) == ("view", ["id", "amount"])


def test_show_prints_rows_with_nested_values(project):
    query = "select array(1, 2) as a, named_struct('x', 1) as s, cast(null as int) as n"
    done = project.dbt("show", "--inline", query, "--output", "json")
    assert done.ok, done.text


def test_every_wrong_key_of_a_profile_is_in_one_error(project):
    project.profile({"schma": "shop", "port": "x", "method": "thrift"})
    done = project.dbt("run")
    assert not done.ok
    for part in ("CONFIG_INVALID", "did you mean `schema`?", "`port` must", "`method` must"):
        assert part in done.error
    assert not (project.root / "warehouse").exists()


@pytest.mark.parametrize("kind", ["table", "view", "materialized_view", "incremental"])
def test_a_name_that_cannot_be_stored_is_refused_and_nothing_is_made(project, kind):
    for number, alias in enumerate(["it's", "back`tick", "x" * 300]):
        config = f"{{{{ config(materialized='{kind}', alias={alias!r}) }}}}"
        project.write(f"models/m{number}.sql", f"{config} select 1 as id")
    done = project.dbt("run")
    assert not done.ok
    assert len(done.messages) == 3
    for message in done.messages.values():
        assert "[STREAMSQL.IDENTIFIER_INVALID]" in message
    assert project.tables() == set()


def test_a_schema_that_cannot_be_stored_is_refused(project):
    project.write("models/m.sql", "{{ config(materialized='table', schema='a`b') }} select 1 id")
    done = project.dbt("run")
    assert not done.ok
    assert "[STREAMSQL.IDENTIFIER_INVALID] the schema name" in done.error


def test_an_unknown_config_key_is_refused_and_nothing_is_made(project):
    project.write(
        "models/m.sql",
        "{{ config(materialized='materialized_view', refresh_mod='full') }} select 1 as id",
    )
    done = project.dbt("run")
    assert "[STREAMSQL.CONFIG_INVALID]" in done.messages["m"]
    assert "did you mean `refresh_mode`?" in done.messages["m"]
    assert project.tables() == set()
