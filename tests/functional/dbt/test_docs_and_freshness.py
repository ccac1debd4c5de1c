"""`dbt docs generate` and `dbt source freshness`: what they tell, from metadata alone."""

from __future__ import annotations

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
    done = raw.dbt("source", "freshness")
    assert not done.ok
    assert "set `loaded_at_field`" in done.messages["clicks"]
