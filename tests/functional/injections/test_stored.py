"""What is really stored is what was given, and nothing else in the warehouse has changed."""

from __future__ import annotations

import csv
import io
import os
import random

import pytest
import yaml

from tests.functional.injections import payloads

pytestmark = pytest.mark.spark

SEED = int(os.environ.get("STREAMSQL_SEED", "1000"))
TEXTS = payloads.ALL
NAMES = list({text.lower(): text for text in TEXTS if text}.values())
"""Column names differ in more than case, and are not empty."""

PROPERTIES = """
{%- set values = {} -%}
{%- for text in var('texts') -%}
  {%- do values.update({'value ' ~ loop.index0: text, text ~ '!': 'key ' ~ loop.index0}) -%}
{%- endfor -%}
{{ config(materialized='table', tblproperties=values, tags=var('texts'),
          meta={'texts': var('texts')}, post_hook="{{ remember(model) }}",
          persist_docs={'relation': true, 'columns': true}) }}
select 1 as id
"""
REMEMBER = """
{% macro remember(model) %}
  insert into lake.shop.log values
  {% for text in model.config.meta.texts -%}
    ({{ loop.index0 }}, {{ adapter.streamsql_literal(text) }}){{ ', ' if not loop.last }}
  {%- endfor %}
{% endmacro %}
"""
COLUMNS = """
{{ config(materialized='%s', contract={'enforced': true}, persist_docs={'columns': true}) }}
select {%% for name in var('names') %%}{{ loop.index0 }} as {{ adapter.quote(name) }}{{ ', ' if not loop.last }}{%% endfor %%}
"""


def _columns(count):
    """Columns with naughty names and descriptions, through the variables of the project."""
    return [
        {
            "name": f"{{{{ var('names')[{i}] }}}}",
            "data_type": "int",
            "description": f"{{{{ var('texts')[{i}] }}}}",
        }
        for i in range(count)
    ]


def _seed(rows):
    out = io.StringIO()
    csv.writer(out, quoting=csv.QUOTE_ALL).writerows([("id", "note"), *rows])
    return out.getvalue()


@pytest.fixture
def naughty(project):
    """A project whose variables are the strings, beside a table that nobody may touch."""
    settings = {"name": "shop", "version": "1.0", "profile": "shop"}
    variables = {"texts": TEXTS, "names": NAMES}
    project.write("dbt_project.yml", yaml.safe_dump({**settings, "vars": variables}))
    project.write("macros/remember.sql", REMEMBER)
    project.write("seeds/victim.csv", "id,note\n1,a\n2,b\n")
    project.write(
        "models/log.sql", "{{ config(materialized='table') }} select 0 as id, '' as note"
    )
    assert project.dbt("build").ok
    before = project.tables(), project.sql("SELECT * FROM lake.shop.victim ORDER BY id")
    yield project
    after = project.tables(), project.sql("SELECT * FROM lake.shop.victim ORDER BY id")
    assert after[1] == before[1]
    made = {"props", "names", "shown", "notes", "keyed", "parted"}
    assert after[0] - before[0] <= made
    schemas = {row[0] for row in project.sql("SHOW NAMESPACES IN lake")}
    assert schemas - {"`__streamsql_staging`", "__streamsql_staging"} == {"shop"}


def test_properties_tags_meta_and_hooks_hold_every_string(naughty):
    naughty.write("models/props.sql", PROPERTIES)
    naughty.write(
        "models/props.yml",
        yaml.safe_dump({"models": [{"name": "props", "description": "{{ var('texts')[40] }}"}]}),
    )
    done = naughty.dbt("run", "--select", "props")
    assert done.ok, done.messages
    stored = dict(naughty.sql("SHOW TBLPROPERTIES lake.shop.props"))
    for number, text in enumerate(TEXTS):
        assert stored[f"value {number}"] == text
        assert stored[f"{text}!"] == f"key {number}"
    logged = naughty.sql("SELECT note FROM lake.shop.log WHERE id < 1000 ORDER BY id")
    assert sorted(row[0] for row in logged) == sorted(["", *TEXTS])
    node = naughty.json("manifest.json")["nodes"]["model.shop.props"]
    assert node["config"]["meta"] == {"texts": TEXTS}
    assert set(node["tags"]) == set(TEXTS)


@pytest.mark.parametrize("kind", ["view", "table"])
def test_columns_and_their_descriptions_hold_every_string(naughty, kind):
    # A comment of a table's column is a statement each.
    count = len(NAMES) if kind == "view" else 40
    naughty.write("models/names.sql", COLUMNS % kind)
    columns = {"models": [{"name": "names", "columns": _columns(count)}]}
    naughty.write("models/names.yml", yaml.safe_dump(columns))
    variables = yaml.safe_load((naughty.root / "dbt_project.yml").read_text())
    variables["vars"]["names"] = NAMES[:count]
    naughty.write("dbt_project.yml", yaml.safe_dump(variables))
    done = naughty.dbt("run", "--select", "names")
    assert done.ok, str(done.messages)[:2000]
    session = naughty.host.acquire()
    fields = session.table("lake.shop.names").schema.fields
    assert [field.name for field in fields] == NAMES[:count]
    for field, text in zip(fields, TEXTS, strict=False):
        assert field.metadata.get("comment", "") == text
    assert list(session.table("lake.shop.names").first()) == list(range(count))


def test_a_seeds_cells_hold_every_string(naughty):
    naughty.write("seeds/notes.csv", _seed(enumerate(TEXTS)))
    naughty.write(
        "seeds/notes.yml",
        yaml.safe_dump(
            {"seeds": [{"name": "notes", "config": {"column_types": {"note": "string"}}}]}
        ),
    )
    done = naughty.dbt("seed", "--select", "notes")
    assert done.ok, done.messages
    rows = dict(naughty.sql("SELECT id, note FROM lake.shop.notes"))
    changed = {text: rows[number] for number, text in enumerate(TEXTS) if rows[number] != text}
    # So does dbt read a CSV file, whatever the type of the column.
    assert changed == {"": None, " ": None, "null": None, "NULL": None, "a\r\n'b": "a\n'b"}


def test_tests_of_accepted_values_and_unit_tests_take_every_string(naughty):
    naughty.write("models/keyed.sql", "select note from {{ ref('notes') }}")
    naughty.write("seeds/notes.csv", _seed(enumerate(t for t in TEXTS if "\r" not in t)))
    # Through a variable: dbt renders the arguments of a test.
    accepted = {"arguments": {"values": "{{ var('texts') }}"}}
    rows = [{"note": text} for text in TEXTS[:60] + payloads.OURS[:60]]
    schema = {
        "seeds": [{"name": "notes", "config": {"column_types": {"note": "string"}}}],
        "models": [
            {
                "name": "keyed",
                "columns": [{"name": "note", "data_tests": [{"accepted_values": accepted}]}],
            }
        ],
        "unit_tests": [
            {
                "name": "same",
                "model": "keyed",
                "given": [{"input": "ref('notes')", "rows": rows}],
                "expect": {"rows": rows},
            }
        ],
    }
    naughty.write("models/keyed.yml", yaml.safe_dump(schema))
    done = naughty.dbt("build", "--select", "notes+")
    assert done.ok, str(done.messages)[:2000]
    assert done.statuses["same"] == "pass"


def test_keys_and_partitions_may_be_any_column(naughty):
    keys = ["a`b", "it's", "-- x", "; drop table lake.shop.victim; --", "a\\'b", "{{ 7 * 7 }}"]
    variables = yaml.safe_load((naughty.root / "dbt_project.yml").read_text())
    # In a config a dot leads to a field; in back-ticks it is a part of the name.
    configured = [f"`{key}`" if "." in key else key for key in keys]
    ticked = ["`" + key.replace("`", "``") + "`" for key in keys]
    variables["vars"] |= {"names": keys, "keys": configured, "ticked": ticked}
    naughty.write("dbt_project.yml", yaml.safe_dump(variables))
    select = (
        "select {% for name in var('names') %}{{ loop.index0 }} + {{ var('n', 0) }} % 2 as "
        "{{ adapter.quote(name) }}, {% endfor %} {{ var('n', 0) }} as n"
    )
    config = (
        "{{ config(materialized='incremental', unique_key=var('keys'), partition_by=var('ticked'),"
        " merge_update_columns=var('keys') + ['n']) }} "
    )
    naughty.write("models/keyed.sql", config + select)
    for n in ("0", "2", "1"):
        done = naughty.dbt("run", "--select", "keyed", "--vars", f"n: {n}")
        assert done.ok, done.messages
    # 2 replaced 0, since the keys are equal; 1 has other keys.
    rows = naughty.host.acquire().table("lake.shop.keyed").collect()
    assert sorted(row.n for row in rows) == [1, 2]
    assert list(rows[0].asDict()) == [*keys, "n"]


ALIASED = "{{ config(materialized='%s', alias=var('names')[%d]) }} select %d as id"
PLAIN = [
    "a-b",
    "with space",
    "v1.2",
    "$dollar",
    "9",
    "select",
    "Mixed",
    "x" * 300,
    "a..b",
    ".hidden",
]


def _quoted(name):
    return "`" + name.replace("`", "``") + "`"


def test_a_table_has_the_name_that_was_asked_for_or_is_refused(project):
    names = PLAIN + random.Random(SEED).sample(NAMES, 50)
    names = list({name.lower(): name for name in names}.values())
    settings = {"name": "shop", "version": "1.0", "profile": "shop", "vars": {"names": names}}
    project.write("dbt_project.yml", yaml.safe_dump(settings))
    project.write("seeds/victim.csv", "id,note\n1,a\n2,b\n")
    for at in range(len(names)):
        kind = "table" if at % 2 else "materialized_view"
        project.write(f"models/m{at}.sql", ALIASED % (kind, at, at))
    done = project.dbt("build", "--vars", "publish: passed_subgraph")
    made = {names[at] for at in range(len(names)) if done.statuses[f"m{at}"] == "success"}
    for at, name in enumerate(names):
        if name in made:
            assert project.sql(f"SELECT id FROM lake.shop.{_quoted(name)}") == [(at,)], name
        else:
            assert "[STREAMSQL.IDENTIFIER_INVALID]" in done.messages[f"m{at}"], name
    assert {"a-b", "with space", "v1.2", "9", "select", "Mixed"} <= made
    assert project.tables() == made | {"victim"}
    assert project.sql("SELECT * FROM lake.shop.victim ORDER BY id") == [(1, "a"), (2, "b")]


@pytest.mark.parametrize("number", range(8))
def test_a_schema_has_the_name_that_was_asked_for_or_is_refused(project, number):
    name = random.Random(SEED + number).choice(NAMES)
    settings = {"name": "shop", "version": "1.0", "profile": "shop", "vars": {"names": [name]}}
    project.write("dbt_project.yml", yaml.safe_dump(settings))
    project.write("models/m.sql", "{{ config(schema=var('names')[0]) }} select 1 as id")
    done = project.dbt("run")
    schemas = {row[0].strip("`") for row in project.sql("SHOW NAMESPACES IN lake")}
    schemas = {schema for schema in schemas if not schema.startswith("__streamsql")}
    if done.ok:
        assert f"shop_{name.strip()}" in schemas
    else:
        assert "[STREAMSQL.IDENTIFIER_INVALID]" in done.messages.get("m", done.error or done.text)
        assert schemas <= {"shop"}
