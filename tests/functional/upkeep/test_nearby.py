"""What the catalog's own files tell about a table is what Iceberg tells."""

from __future__ import annotations

from pathlib import Path

import pytest

from dbt_streamsql.quoting import TableName
from dbt_streamsql.runtime.spark.settings import CATALOG_FILE
from dbt_streamsql.storage.iceberg import metadata, sqlite_catalog
from dbt_streamsql.storage.iceberg.strategies import sql

MERGE_ON_READ = "'format-version' = '3', 'write.delete.mode' = 'merge-on-read'"


@pytest.fixture
def near(spark, warehouse):
    """The session, whose catalog is known to lie here."""
    sqlite_catalog.declare(spark, "lake", Path(warehouse) / CATALOG_FILE)
    yield spark
    sqlite_catalog._catalogs.pop(spark)


@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_the_files_tell_what_iceberg_tells(near, schema, codec):
    name = TableName("lake", schema, "Mixed_Case")
    properties = f"{MERGE_ON_READ}, 'write.metadata.compression-codec' = '{codec}'"
    near.sql(
        f"CREATE TABLE {name.sql} (id INT, s STRUCT<a: DECIMAL(9, 2), b: ARRAY<STRING>>) "
        f"USING iceberg PARTITIONED BY (bucket(2, id)) TBLPROPERTIES ({properties})"
    )
    for change in (
        f"INSERT INTO {name.sql} VALUES (1, NULL), (2, NULL)",
        f"ALTER TABLE {name.sql} CREATE TAG first",
        f"DELETE FROM {name.sql} WHERE id = 1",
        f"ALTER TABLE {name.sql} CREATE BRANCH other",
        f"ALTER TABLE {name.sql} ADD COLUMN more STRING",
    ):
        near.sql(change)
        found = sqlite_catalog.body(near, name)
        assert found is not None
        assert metadata.from_json(found) == metadata.load(near, name)


def test_views_and_missing_tables_are_not_tables(near, schema):
    near.sql(f"CREATE VIEW lake.{schema}.v AS SELECT 1 AS one")
    view, missing = TableName("lake", schema, "v"), TableName("lake", schema, "w")
    assert sqlite_catalog.is_view(near, view)
    assert not sqlite_catalog.is_view(near, missing)
    assert sqlite_catalog.body(near, view) is None
    assert sql.load(near, view) is None
    assert sqlite_catalog.body(near, missing) is None


def test_what_is_not_near_is_asked_from_spark(near, schema, tmp_path):
    other = TableName("spark_catalog", schema, "t")
    with pytest.raises(sqlite_catalog.CatalogNotLocalError):
        sqlite_catalog.body(near, other)
    sqlite_catalog.declare(near, "lake", tmp_path / "missing.db")
    with pytest.raises(sqlite_catalog.CatalogNotLocalError):
        sqlite_catalog.body(near, TableName("lake", schema, "t"))
    assert not (tmp_path / "missing.db").exists()


@pytest.fixture
def staged(near, schema):
    """A table of two versions, and a hidden one that begins where it is and has other rows."""
    name, other = TableName("lake", schema, "t"), TableName("lake", schema, "hidden")
    near.sql(f"CREATE TABLE {name.sql} (id INT) USING iceberg TBLPROPERTIES ('keep' = 'it')")
    near.sql(f"INSERT INTO {name.sql} VALUES (1), (2)")
    base = sqlite_catalog.location(near, name)
    sqlite_catalog.add(near, other, base)
    near.sql(
        f"CREATE OR REPLACE TABLE {other.sql} USING iceberg "
        "TBLPROPERTIES ('keep' = 'it', 'own' = 'x', 'odd' = 'y') AS SELECT 'a' AS name"
    )
    return name, other, base


def test_a_swap_gives_the_rows_and_keeps_the_history(near, schema, staged):
    name, other, base = staged
    before = metadata.load(near, name)
    assert sqlite_catalog.swap(near, name, base, other, {"own": None, "odd": "even"})
    after = metadata.load(near, name)
    assert near.table(name.sql).collect() == [("a",)]
    assert (after.uuid, set(before.snapshots) <= set(after.snapshots)) == (before.uuid, True)
    assert (after.properties["keep"], after.properties["odd"]) == ("it", "even")
    assert "own" not in after.properties
    old = near.sql(f"SELECT * FROM {name.sql} VERSION AS OF {before.current}").collect()
    assert sorted(old) == [(1,), (2,)]
    assert [row["tableName"] for row in near.sql(f"SHOW TABLES IN lake.{schema}").collect()] == [
        "t"
    ]
    log = near.sql(f"SELECT file FROM {name.sql}.metadata_log_entries").collect()
    assert log[-1][0] == sqlite_catalog.location(near, name)
    assert len({row[0] for row in log}) == len(log)
    near.sql(f"INSERT INTO {name.sql} VALUES ('b')")
    assert near.table(name.sql).count() == 2


def test_a_pointer_that_has_moved_is_not_swapped(near, staged):
    name, other, base = staged
    near.sql(f"INSERT INTO {name.sql} VALUES (3)")
    moved = sqlite_catalog.location(near, name)
    folder = Path(moved.removeprefix("file:")).parent
    files = set(folder.iterdir())
    assert not sqlite_catalog.swap(near, name, base, other, {})
    assert sqlite_catalog.location(near, name) == moved
    assert sqlite_catalog.body(near, other) is not None
    assert set(folder.iterdir()) == files


def test_a_writer_that_comes_between_look_and_swap_wins(near, staged, monkeypatch):
    name, other, base = staged
    written = sqlite_catalog._written

    def late(*arguments):
        near.sql(f"INSERT INTO {name.sql} VALUES (3)")
        return written(*arguments)

    monkeypatch.setattr(sqlite_catalog, "_written", late)
    assert not sqlite_catalog.swap(near, name, base, other, {})
    assert near.table(name.sql).count() == 3
    folder = Path(sqlite_catalog.location(near, name).removeprefix("file:")).parent
    known = {
        row[0].rpartition("/")[2]
        for row in near.sql(f"SELECT file FROM {name.sql}.metadata_log_entries").collect()
    }
    mine = sqlite_catalog.location(near, other).rpartition("/")[2]
    left = {file.name for file in folder.glob("*.metadata.json")} - known
    assert left <= {mine}


def test_a_schema_is_known_when_it_is_there(near, schema):
    assert sqlite_catalog.has_schema(near, "lake", schema)
    assert not sqlite_catalog.has_schema(near, "lake", f"{schema}_2")
