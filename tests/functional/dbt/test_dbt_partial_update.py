"""Wide tables in dbt: branches in one file or one file each, one run is one barrier."""

from __future__ import annotations

import json

import pytest

pytestmark = pytest.mark.spark

SEEDS = {
    "crm": "id,name,city\n1,Ann,Rome\n2,Bob,Oslo\n",
    "web": "user_id,clicks,city\n1,10,Paris\n3,30,Bern\n",
}
CONFIG = "{{{{ config(materialized='partial_update', key='id'{more}) }}}}\n"
STATEMENTS = """
-- what we know of people; a semicolon in a comment;
INSERT INTO {{ this }} (id, name) SELECT id, name FROM {{ ref('crm') }};
INSERT INTO {{ this }} (id, clicks)
SELECT user_id, clicks FROM {{ ref('web') }} WHERE clicks > 0
"""
CRM = "{{ config(materialized='view', sink='people', columns=['name']) }} select id, name from {{ ref('crm') }}"
WEB = (
    "{{ config(materialized='materialized_view', sink='people', columns=['clicks', 'city']) }} "
    "select user_id, clicks, city from {{ ref('web') }}"
)
BRANCHES = "{{ branch(ref('people_crm')) }}\n{{ branch(ref('people_web'), key='user_id') }}\n"


@pytest.fixture
def people(project):
    for name, rows in SEEDS.items():
        project.write(f"seeds/{name}.csv", rows)
    assert project.dbt("seed").ok
    return project


def rows(project):
    return project.sql("SELECT * FROM lake.shop.people ORDER BY id")


def test_statements_in_one_model_are_one_wide_table_kept_from_changes(people):
    people.write("models/people.sql", CONFIG.format(more="") + STATEMENTS)
    done = people.dbt("run")
    assert done.ok, done.messages
    found = people.sql("SELECT id, name, clicks FROM lake.shop.people ORDER BY id")
    assert found == [(1, "Ann", 10), (2, "Bob", None), (3, None, 30)]
    assert people.dbt("run").messages["people"] == "NOOP"
    people.sql("UPDATE lake.shop.web SET clicks = 11 WHERE user_id = 1")
    again = people.dbt("run")
    assert again.messages["people"].startswith("INCREMENTAL +1 -1 (")
    assert people.host.engine.verify("lake.shop.people") == []


def test_branches_that_are_models_write_the_columns_of_their_config(people):
    people.write("models/people_crm.sql", CRM)
    people.write("models/people_web.sql", WEB)
    people.write("models/people.sql", CONFIG.format(more="") + BRANCHES)
    done = people.dbt("build", "--exclude", "resource_type:seed")
    assert done.ok, done.messages
    found = people.sql("SELECT id, name, clicks, city FROM lake.shop.people ORDER BY id")
    assert found == [(1, "Ann", 10, "Paris"), (2, "Bob", None, None), (3, None, 30, "Bern")]
    people.sql("DELETE FROM lake.shop.web WHERE user_id = 3")
    people.sql("UPDATE lake.shop.crm SET name = NULL WHERE id = 2")
    assert people.dbt("run").messages["people"].startswith("INCREMENTAL +1 -2 (")
    found = people.sql("SELECT id, name FROM lake.shop.people ORDER BY id")
    assert found == [(1, "Ann"), (2, None)]
    assert people.host.engine.verify("lake.shop.people") == []


def test_lineage_shows_every_branch_as_an_edge_to_the_wide_table(people):
    people.write("models/people_crm.sql", CRM)
    people.write("models/people_web.sql", WEB)
    people.write("models/people.sql", CONFIG.format(more="") + BRANCHES)
    assert people.dbt("run").ok
    assert people.dbt("docs", "generate").ok
    manifest = json.loads((people.root / "target" / "manifest.json").read_text())
    parents = manifest["parent_map"]["model.shop.people"]
    assert sorted(parents) == ["model.shop.people_crm", "model.shop.people_web"]
    told = (people.root / "target/run/shop/models/people.sql").read_text()
    assert "one writer for all branches" in told
    assert "after reuse: 1 sink" in told
    assert "target columns [[0], [2], [3]]" in told


def test_a_branch_that_says_a_sink_and_is_not_in_it_is_refused(people):
    people.write("models/people_crm.sql", CRM)
    people.write("models/people_web.sql", WEB)
    people.write("models/people.sql", CONFIG.format(more="") + "{{ branch(ref('people_crm')) }}")
    done = people.dbt("run")
    assert not done.ok
    assert "PARTIAL_UPDATE_INVALID" in done.messages["people"]
    assert "add {{ branch(ref('people_web')) }}" in done.messages["people"]


def test_a_branch_of_another_sink_is_refused(people):
    people.write("models/people_crm.sql", CRM.replace("sink='people'", "sink='others'"))
    people.write("models/people.sql", CONFIG.format(more="") + "{{ branch(ref('people_crm')) }}")
    done = people.dbt("run")
    assert "`people_crm` has a different `sink`: `others`" in done.messages["people"]


def test_rules_come_from_the_config_and_another_one_takes_effect(people):
    shared = STATEMENTS.replace(
        "(id, name) SELECT id, name", "(id, city) SELECT id, city"
    ).replace("(id, clicks)\nSELECT user_id, clicks", "(id, city)\nSELECT user_id, city")
    people.write("models/people.sql", CONFIG.format(more=", precedence=['crm', 'web']") + shared)
    assert people.dbt("run").ok
    assert rows(people)[0][:2] == (1, "Rome")
    more = ", merge={'city': 'listagg'}, row_lifetime='anchor:crm'"
    people.write("models/people.sql", CONFIG.format(more=more) + shared)
    done = people.dbt("run")
    assert done.ok, done.messages
    assert [row[:2] for row in rows(people)] == [(1, "Rome,Paris"), (2, "Oslo")]


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ("materialized='partial_update'", "`key` is missing"),
        ("materialized='partial_update', key='id', presedence=['a']", "did you mean `precedence`"),
        ("materialized='partial_update', key='id', merge='sum'", "`merge` must give a function"),
        ("materialized='partial_update', key='id', reuse_sink='no'", "`reuse_sink` must be true"),
        (
            "materialized='partial_update', key='id', sequence_by=3",
            "`sequence_by` must be a column",
        ),
        ("materialized='partial_update', key='id', precedence=3", "`precedence` must be a name"),
        (
            "materialized='partial_update', key='id', row_lifetime=3",
            "`row_lifetime` must be text",
        ),
    ],
)
def test_a_config_that_is_wrong_is_told(people, config, told):
    people.write("models/people.sql", "{{ config(" + config + ") }}" + STATEMENTS)
    done = people.dbt("run")
    assert not done.ok
    assert told in done.messages["people"]


def test_a_wide_table_and_a_reader_of_it_are_one_barrier(people):
    people.write("models/people.sql", CONFIG.format(more=", reuse_sink=false") + STATEMENTS)
    people.write(
        "models/total.sql",
        "{{ config(materialized='materialized_view') }} "
        "select count(*) as n, sum(clicks) as clicks from {{ ref('people') }}",
    )
    assert people.dbt("run").ok
    people.sql("INSERT INTO lake.shop.web VALUES (2, 5, 'x')")
    done = people.dbt("run")
    assert done.messages["people"].startswith("INCREMENTAL +1 -1")
    assert people.sql("SELECT n, clicks FROM lake.shop.total") == [(3, 45)]
    barriers = people.sql(
        "SELECT count(DISTINCT value) FROM (SELECT summary['streamsql.barrier'] AS value, "
        "row_number() OVER (ORDER BY committed_at DESC) AS n FROM lake.shop.total.snapshots) WHERE n = 1"
    )
    assert barriers == [(1,)]
