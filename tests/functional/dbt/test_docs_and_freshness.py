"""`dbt docs generate` and `dbt source freshness`: what they tell, from metadata alone."""

from __future__ import annotations

import json

import pytest

SOURCES = """
    sources:
      - name: raw
        database: lake
        schema: raw
        config: {freshness: {error_after: {count: 0, period: minute}}}
        tables: [{name: clicks}]
"""


@pytest.fixture
def raw(project):
    """A project with a source that has two small files."""
    project.write("models/sources.yml", SOURCES)
    project.write("models/one.sql", "select 1 as id")
    assert project.dbt("run").ok
    project.sql("CREATE NAMESPACE lake.raw")
    project.sql("CREATE TABLE lake.raw.clicks (id INT)")
    for number in (1, 2):
        project.sql(f"INSERT INTO lake.raw.clicks VALUES ({number})")
    return project


def _limits(project):
    """Those of the view v, by `streamsql status`."""
    told = json.loads(project.streamsql("status", "--json").stdout)
    return next(node["freshness"] for node in told["tables"] if node["table"] == "lake.shop.v")


def _loaded_at(project):
    project.dbt("source", "freshness")
    (result,) = project.json("sources.json")["results"]
    return result


def test_docs_tell_rows_size_partitions_owner_comment_and_barrier(project):
    project.write(
        "models/events.sql",
        """
        {{ config(materialized='table', partition_by='day', persist_docs={'relation': true}) }}
        select id, date'2024-01-01' as day from range(3)
        """,
    )
    project.write("models/m.yml", "models: [{name: events, description: what happened}]")
    project.write(
        "models/days.sql",
        """
        {{ config(materialized='materialized_view') }}
        select day, avg(id) as mean from {{ ref('events') }} group by day
        """,
    )
    assert project.dbt("run").ok
    assert project.dbt("docs", "generate").ok
    nodes = project.json("catalog.json")["nodes"]
    events, days = nodes["model.shop.events"], nodes["model.shop.days"]
    stats = {key: stat["value"] for key, stat in events["stats"].items()}
    assert (stats["rows"], stats["files"], stats["partitioning"]) == (3, 1, "identity(day)")
    assert stats["bytes"] > 100
    assert stats["last_change"].startswith("20")
    assert events["metadata"]["comment"] == "what happened"
    assert events["metadata"]["owner"]
    assert days["metadata"]["type"] == "materialized_view"
    assert days["stats"]["barrier"]["value"] == 1
    assert days["stats"]["kept"]["value"].startswith("incremental, ")
    (told,) = (project.root / "target/run").rglob("days.sql")
    assert "-- lake.shop.days: incremental" in told.read_text()
    assert list(days["columns"]) == ["day", "mean"]


def test_freshness_is_the_time_of_the_last_change_and_reads_no_row(raw, spark):
    tracker = spark.sparkContext.statusTracker()
    committed = raw.sql("SELECT max(committed_at) FROM lake.raw.clicks.snapshots")[0][0]
    jobs = len(tracker.getJobIdsForGroup(None))
    result = _loaded_at(raw)
    assert len(tracker.getJobIdsForGroup(None)) == jobs
    assert result["status"] == "error", "older than no minutes"
    seconds = committed.strftime("%Y-%m-%dT%H:%M:%S")
    assert result["max_loaded_at"].startswith(seconds)


def test_a_compaction_makes_nothing_fresh(raw):
    before = _loaded_at(raw)["max_loaded_at"]
    raw.sql(
        "CALL lake.system.rewrite_data_files(table => 'raw.clicks', "
        "options => map('rewrite-all', 'true'))"
    )
    snapshots = raw.sql("SELECT operation FROM lake.raw.clicks.snapshots")
    assert sorted(row[0] for row in snapshots) == ["append", "append", "replace"]
    assert _loaded_at(raw)["max_loaded_at"] == before


def test_a_source_without_snapshots_says_how_to_tell_its_freshness(raw):
    raw.sql("DROP TABLE lake.raw.clicks")
    raw.sql("CREATE VIEW lake.raw.clicks AS SELECT 1 AS id")
    raw.sql("CREATE TABLE lake.raw.visits (id INT)")
    raw.sql("INSERT INTO lake.raw.visits VALUES (1)")
    both = "[{name: clicks}, {name: visits}]"
    raw.write("models/sources.yml", SOURCES.replace("[{name: clicks}]", both))
    done = raw.dbt("source", "freshness")
    assert not done.ok
    assert "set `loaded_at_field`" in done.messages["clicks"]
    assert done.statuses["visits"] == "error", "older than no minutes: it was looked at"


@pytest.fixture
def documented(project):
    """A materialized view, one over it, a wide table and a streaming table, with comments."""
    project.write(
        "dbt_project.yml",
        """
        name: shop
        version: '1.0'
        profile: shop
        models:
          +persist_docs: {relation: true, columns: true}
        """,
    )
    project.write("seeds/orders.csv", "id,amount\n1,10\n2,7\n")
    (project.root / "in").mkdir()
    (project.root / "in" / "a.json").write_text('{"id": 1, "amount": 3}\n')
    project.write(
        "models/kept.sql",
        "{{ config(materialized='materialized_view') }} "
        "select id, sum(amount) as amount from {{ ref('orders') }} group by id",
    )
    project.write(
        "models/above.sql",
        "{{ config(materialized='materialized_view') }} select count(*) as n from {{ ref('kept') }}",
    )
    project.write(
        "models/wide.sql",
        "{{ config(materialized='partial_update', key='id') }} "
        "insert into {{ this }} (id, amount) select id, amount from {{ ref('orders') }};",
    )
    project.write(
        "models/stream.sql",
        "{{ config(materialized='streaming_table') }} "
        "select id, amount from {{ source('outside', 'events') }}",
    )
    describe(project, "What it's for", "The sum")
    return project


def describe(project, table, column, more=""):
    models = "".join(
        f"""
          - name: {name}
            description: "{table}"
            columns: [{{name: id, description: ''}}, {{name: amount, description: "{column}"}}{more}]
        """
        for name in ("kept", "wide", "stream")
    )
    project.write(
        "models/models.yml",
        f"""
        sources:
          - name: outside
            tables:
              - name: events
                config:
                  meta:
                    streamsql: {{connector: files, format: json, schema: id int, amount int,
                                options: {{path: in}}}}
        models:
        {models}
        """.replace("id int, amount int", "'id int, amount int'"),
    )


def comments(project, table):
    """Of the table, and of its columns."""
    rows = project.sql(f"DESCRIBE lake.shop.{table}")
    columns = {row[0]: row[2] for row in rows if not row[0].startswith("__streamsql")}
    told = {row[0]: row[1] for row in project.sql(f"DESCRIBE EXTENDED lake.shop.{table}")}
    return told.get("Comment"), columns


def test_comments_of_maintained_tables_are_kept(documented):
    done = documented.dbt("build")
    assert done.ok, (done.messages, done.error)
    for name in ("kept", "wide", "stream"):
        assert comments(documented, name) == ("What it's for", {"id": None, "amount": "The sum"})
    before = documented.snapshots("kept")
    describe(documented, "Another", "Other \\\\ words")
    done = documented.dbt("run")
    assert done.ok, (done.messages, done.error)
    for name in ("kept", "wide", "stream"):
        assert comments(documented, name) == ("Another", {"id": None, "amount": "Other \\ words"})
    assert documented.snapshots("kept") == before, "nothing was computed for it"
    log = "SELECT count(*) FROM lake.shop.kept.metadata_log_entries"
    written = documented.sql(log)
    assert documented.dbt("run").messages["kept"] == "NOOP"
    assert documented.sql(log) == written, "the same comments are not set again"
    documented.sql("INSERT INTO lake.shop.orders VALUES (3, 5)")
    done = documented.dbt("run")
    assert done.messages["kept"].startswith("APPEND +1")
    assert done.messages["above"].startswith("INCREMENTAL"), "a comment makes no view anew"
    assert comments(documented, "kept")[0] == "Another"
    assert documented.host.engine.verify("lake.shop.above") == []


def test_a_comment_of_a_column_that_is_not_there_is_told(documented):
    describe(documented, "What", "The sum", ", {name: nothing, description: none}")
    done = documented.dbt("build")
    assert done.ok, (done.messages, done.error)
    assert "lake.shop.kept lacks columns that have comments: nothing" in done.text
    assert comments(documented, "kept") == ("What", {"id": None, "amount": "The sum"})


def test_a_full_refresh_and_another_query_keep_the_comments(documented):
    assert documented.dbt("build").ok
    documented.write(
        "models/kept.sql",
        "{{ config(materialized='materialized_view') }} select id, "
        "sum(amount) as amount, count(*) as n from {{ ref('orders') }} group by id",
    )
    assert documented.dbt("run", "--full-refresh", "-s", "kept").ok
    table, columns = comments(documented, "kept")
    assert (table, columns["amount"], columns["n"]) == ("What it's for", "The sum", None)


def test_a_promise_of_freshness_is_told_by_status_and_changes_without_computing(project):
    project.write("models/t.sql", "{{ config(materialized='table') }} select 1 as id")
    project.write(
        "models/v.sql",
        "{{ config(materialized='materialized_view') }} select id from {{ ref('t') }}",
    )
    limit = "{name: v, config: {freshness: {%s: {count: 1, period: %s}}}}"
    project.write("models/m.yml", f"models: [{limit % ('warn_after', 'day')}]")
    assert project.dbt("run").ok
    assert _limits(project) == {"warn_after": 86400.0, "error_after": None}
    project.write("models/m.yml", f"models: [{limit % ('error_after', 'minute')}]")
    done = project.dbt("run", "--select", "v")
    assert done.ok
    assert done.messages["v"].startswith("NOOP"), "a limit is no change of rows"
    assert _limits(project) == {"warn_after": None, "error_after": 60.0}
    project.write("models/m.yml", f"models: [{limit % ('error_after', 'week')}]")
    assert "one of minute, hour, day" in project.dbt("run", "--select", "v").messages["v"]
