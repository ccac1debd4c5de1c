"""What only an Iceberg table promises: history, refs, ids, one write, and one snapshot a replace."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from dbt_streamsql.quoting import TableName
from dbt_streamsql.runtime.publish.plain_tables import Build
from dbt_streamsql.runtime.spark.session import new_session
from dbt_streamsql.runtime.spark.session_pool import JobCount
from dbt_streamsql.storage.iceberg import metadata, staging
from dbt_streamsql.storage.staged_table import StagingPurpose, TableSpec
from dbt_streamsql.storage.tables import registry

pytestmark = pytest.mark.spark

V3 = {"format-version": "3"}


@pytest.fixture
def spec(engine, schema):
    """A table of three rows."""
    spec = TableSpec(TableName("lake", schema, "t"), properties=V3)
    engine.create_table_as(Build(spec, "SELECT id, 'a' AS name FROM range(3)"))
    return spec


def staged_by(engine, spec, query):
    """Staged and checked, not committed."""
    purpose = StagingPurpose.CREATE_OR_REPLACE_TABLE_AS
    staged = registry.apply_staging(engine.spark, spec, purpose, engine.warehouse.location)
    staged.begin(engine.spark, query)
    return staged


def rows(engine, text):
    return sorted(map(tuple, engine.spark.sql(text).collect()))


def test_history_tags_and_views_outlive_a_replacement(engine, spec):
    spark, name = engine.spark, spec.name
    spark.sql(f"ALTER TABLE {name.sql} CREATE TAG first")
    spark.sql(f"CREATE VIEW lake.`{name.schema}`.v AS SELECT name FROM {name.sql}")
    old = metadata.load(spark, name)
    query = "SELECT 'b' AS name, id * 2 AS id, true AS new FROM range(2)"
    engine.create_table_as(Build(replace(spec, partition_by=("new",)), query))
    new = metadata.load(spark, name)
    assert rows(engine, f"SELECT name, id FROM {name.sql}") == [("b", 0), ("b", 2)]
    assert rows(engine, f"SELECT * FROM {name.sql} VERSION AS OF 'first'")[0] == (0, "a")
    assert rows(engine, f"SELECT * FROM {name.sql} VERSION AS OF {old.current}")[0] == (0, "a")
    assert rows(engine, f"SELECT * FROM lake.`{name.schema}`.v") == [("b",), ("b",)]
    assert (new.uuid, new.location, new.partitioning) == (
        old.uuid,
        old.location,
        ("identity(new)",),
    )
    assert len(new.snapshots) == 2
    assert not [key for key in new.properties if "path" in key]


def test_row_ids_go_on_after_a_replacement(engine, spec):
    engine.create_table_as(Build(spec, "SELECT id, 'b' AS name FROM range(3)"))
    engine.spark.sql(f"INSERT INTO {spec.name.sql} VALUES (9, 'c')")
    found = engine.spark.sql(f"SELECT _row_id, id FROM {spec.name.sql}").collect()
    ids = sorted(row["_row_id"] for row in found)
    assert len(set(ids)) == 4
    assert min(ids) >= 3, "row ids of the old rows were given again"


def test_a_replacement_writes_its_rows_once(engine, spec):
    spark = engine.spark
    query = "SELECT id, 'b' AS name FROM range(1000)"
    count = JobCount(spark)
    spark.sql(f"CREATE OR REPLACE TABLE {spec.name.sql} USING iceberg AS {query}")
    plain = count.stop().jobs
    count = JobCount(spark)
    engine.create_table_as(Build(spec, query))
    assert count.stop().jobs == plain
    written = metadata.load(spark, spec.name)
    assert int(written.snapshots[written.current].summary["added-records"]) == 1000


def test_what_others_write_meanwhile_is_replaced_and_stays_in_the_history(engine, spec):
    spark, name = engine.spark, spec.name
    commented = replace(spec, column_comments={"id": "the key"}, partition_by=("name",))
    staged = staged_by(engine, commented, "SELECT id, 'b' AS name FROM range(2)")
    spark.sql(f"INSERT INTO {name.sql} VALUES (7, 'theirs')")
    theirs = metadata.load(spark, name).current
    staged.commit(spark)
    assert rows(engine, f"SELECT * FROM {name.sql}") == [(0, "b"), (1, "b")]
    assert (7, "theirs") in rows(engine, f"SELECT * FROM {name.sql} VERSION AS OF {theirs}")
    told = {row[0]: row[2] for row in spark.sql(f"DESCRIBE {name.sql}").collect()}
    assert told["id"] == "the key"
    assert metadata.load(spark, name).partitioning == ("identity(name)",)
    assert staging.staged_tables(spark, "lake") == []


def test_a_table_that_others_create_meanwhile_is_replaced(engine, schema):
    spec = TableSpec(TableName("lake", schema, "new"))
    staged = staged_by(engine, spec, "SELECT 1 AS id")
    engine.spark.sql(f"CREATE TABLE {spec.name.sql} (other STRING) USING iceberg")
    staged.commit(engine.spark)
    assert rows(engine, f"SELECT * FROM {spec.name.sql}") == [(1,)]
    assert staging.staged_tables(engine.spark, "lake") == []


@pytest.mark.parametrize("later", ["nothing", "appended and expired"])
def test_cleaning_up_after_a_death_in_the_middle_of_publishing_keeps_the_files(
    engine, spec, later, monkeypatch
):
    spark, name = engine.spark, spec.name
    staged = staged_by(engine, spec, "SELECT id, 'b' AS name FROM range(2)")

    def die(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("dbt_streamsql.storage.tables.iceberg_table._drop_entry", die)
        with pytest.raises(KeyboardInterrupt):
            staged.commit(spark)
    expected = [(0, "b"), (1, "b")]
    if later != "nothing":
        spark.sql(f"INSERT INTO {name.sql} VALUES (2, 'c')")
        spark.sql(
            f"CALL lake.system.expire_snapshots(table => '{name.schema}.{name.table}', "
            "older_than => now(), retain_last => 1)"
        )
        expected.append((2, "c"))
    staged.abort(spark)
    staged.abort(spark)
    assert rows(engine, f"SELECT * FROM {name.sql}") == expected
    assert staging.staged_tables(spark, "lake") == []


def test_two_who_replace_one_table_at_once_both_succeed_and_leave_nothing(engine, spec):
    problems = []

    def work(word):
        try:
            session = new_session(engine.spark)
            query = f"SELECT id, '{word}' AS name FROM range(5)"
            engine.create_table_as(Build(spec, query), spark=session)
        except Exception as error:  # noqa: BLE001 - told by the test
            problems.append(str(error)[:2000])

    threads = [threading.Thread(target=work, args=(word,)) for word in ("x", "y", "z")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    found = rows(engine, f"SELECT count(*), count(DISTINCT name) FROM {spec.name.sql}")
    assert found == [(5, 1)]
    assert staging.staged_tables(engine.spark, "lake") == []
    assert engine.store.staged.records() == []


def test_a_table_keeps_the_place_that_was_chosen_for_it(engine, schema, tmp_path):
    place = f"{tmp_path}/mine"
    spec = TableSpec(TableName("lake", schema, "placed"), location=place, properties=V3)
    engine.create_table_as(Build(spec, "SELECT 1 AS id"))
    found = metadata.load(engine.spark, spec.name)
    assert found.location.removeprefix("file:") == place
    assert not [key for key in found.properties if "path" in key]
    engine.create_table_as(Build(spec, "SELECT 2 AS id"))
    assert metadata.load(engine.spark, spec.name).location.removeprefix("file:") == place
    assert rows(engine, f"SELECT * FROM {spec.name.sql}") == [(2,)]


def test_a_view_kept_up_to_date_notices_that_its_input_was_replaced(engine, spec):
    view = f"lake.{spec.name.schema}.counted"
    query = f"SELECT name, count(*) AS n FROM {spec.name.sql} GROUP BY name"
    engine.create_materialized_view(view, query)
    engine.create_table_as(Build(spec, "SELECT id, if(id > 0, 'a', 'b') AS name FROM range(4)"))
    assert engine.advance().tables[view].mode != "noop"
    assert engine.verify(view) == []
    assert rows(engine, f"SELECT name, n FROM {view}") == [("a", 3), ("b", 1)]
