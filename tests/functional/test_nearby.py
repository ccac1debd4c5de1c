"""What the catalog's own files tell about a table is what Iceberg tells."""

from __future__ import annotations

from pathlib import Path

import pytest

from dbt_streamsql.quoting import TableName
from dbt_streamsql.runtime.session import CATALOG_FILE
from dbt_streamsql.storage.iceberg import metadata, nearby

MERGE_ON_READ = "'format-version' = '3', 'write.delete.mode' = 'merge-on-read'"


@pytest.fixture
def near(spark, warehouse):
    """The session, whose catalog is known to lie here."""
    nearby.declare(spark, "lake", Path(warehouse) / CATALOG_FILE)
    yield spark
    nearby._catalogs.pop(spark)


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
        found = nearby.body(near, name)
        assert found is not None
        assert metadata._from_json(dict(found)) == metadata.load(near, name)


def test_views_and_missing_tables_are_not_tables(near, schema):
    near.sql(f"CREATE VIEW lake.{schema}.v AS SELECT 1 AS one")
    view, missing = TableName("lake", schema, "v"), TableName("lake", schema, "w")
    assert nearby.is_view(near, view)
    assert not nearby.is_view(near, missing)
    assert nearby.body(near, view) is None
    assert metadata._load_by_sql(near, view) is None
    assert nearby.body(near, missing) is None


def test_what_is_not_near_is_asked_from_spark(near, schema, tmp_path):
    other = TableName("spark_catalog", schema, "t")
    with pytest.raises(nearby.NotNearbyError):
        nearby.body(near, other)
    nearby.declare(near, "lake", tmp_path / "missing.db")
    with pytest.raises(nearby.NotNearbyError):
        nearby.body(near, TableName("lake", schema, "t"))
    assert not (tmp_path / "missing.db").exists()
