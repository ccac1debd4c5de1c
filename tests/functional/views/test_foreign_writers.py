"""The change of a table that others write: exact however they wrote, and cheap to find."""

from __future__ import annotations

import random

import pyarrow.parquet as pq
import pytest

from dbt_streamsql.quoting import TableName
from dbt_streamsql.storage.iceberg import metadata
from dbt_streamsql.storage.iceberg.access import tables_of
from dbt_streamsql.storage.iceberg.scans import changes
from dbt_streamsql.storage.inputs import inputs

pytestmark = [pytest.mark.spark, pytest.mark.hunts]

_APPEND = "INSERT INTO {t} SELECT id, concat('y', id % 3) FROM range({n}, {n} + 30)"
_DELETE = "DELETE FROM {t} WHERE k * 7919 % 101 = {n} % 101"
_UPDATE = "UPDATE {t} SET v = concat(v, 'u') WHERE k * 7919 % 101 = {n} % 101"
_IDLE_UPDATE = "UPDATE {t} SET v = v WHERE k * 7919 % 101 = {n} % 101"
_DROP_FILES = "DELETE FROM {t} WHERE k >= 0 AND k < 500"
_COMPACT = (
    "CALL lake.system.rewrite_data_files(table => '{t}', options => map('rewrite-all', 'true'))"
)
_HISTORIES = {
    "appends and deletes": ([_APPEND, _APPEND, _DELETE], {"append", "positions"}),
    "updates too": ([_APPEND, _DELETE, _UPDATE, _IDLE_UPDATE], {"append", "positions"}),
    "everything": ([_APPEND, _DELETE, _UPDATE, _COMPACT, _DROP_FILES], None),
}


@pytest.fixture
def table(spark, schema):
    """Two files of rows in a merge-on-read table; the rows of the first go as a file."""
    return _made(spark, schema, 3)


def _made(spark, schema, version):
    name = TableName("lake", schema, "written")
    modes = ", ".join(f"'write.{w}.mode' = 'merge-on-read'" for w in ("delete", "update", "merge"))
    spark.sql(
        f"CREATE TABLE {name} (k BIGINT, v STRING) "
        f"TBLPROPERTIES ('format-version' = '{version}', {modes})"
    )
    for low in (0, 500):
        spark.sql(
            f"INSERT INTO {name} SELECT id, concat('x', id % 7) FROM range({low}, {low + 500})"
        )
    return name


def _rows(spark, relation):
    found = spark.sql(
        f"SELECT k, v, sum(_streamsql_w) FROM {relation} GROUP BY ALL HAVING sum(_streamsql_w) <> 0"
    )
    return sorted(map(tuple, found.collect()))


def _decoded(spark, table, meta, change, columns, most=1 << 30):
    """The change as the process reads it by itself."""
    found = tables_of(spark).changed_rows(table, meta, change, columns, most)
    if found is None:
        return None
    return sorted(tuple(row.values()) for row in found.to_pylist())


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("history", _HISTORIES)
def test_the_change_of_a_foreign_table_is_the_difference_of_its_versions(
    spark, schema, history, version
):
    table = _made(spark, schema, version)
    statements, kinds = _HISTORIES[history]
    rng = random.Random(history)
    for _ in range(6):
        old = metadata.load(spark, table).current
        for _ in range(3):
            spark.sql(rng.choice(statements).format(t=table, n=rng.randrange(1000)))
        meta = metadata.load(spark, table)
        change = inputs.classify(meta, old, meta.current)
        versions = (changes.version(table, at) for at in (meta.current, old))
        expected = _rows(spark, f"({changes.difference(*versions, 'k, v')})")
        newer = tables_of(spark).newer_rows()
        for files in (None, newer.changed(table, meta, change)):
            read = inputs.read(table, meta, change, ("k", "v"), files)
            assert (_rows(spark, read) if read else []) == expected, change
        newer.close()
        decoded = _decoded(spark, table, meta, change, ("k", "v"))
        # Deletes of v2 are in files of their own, which only Spark reads.
        if decoded is not None or (version == 3 and change.kind == "positions"):
            assert decoded == expected, change
        assert sum(abs(weight) for _, _, weight in expected) <= change.rows
        assert kinds is None or change.kind in kinds


_KINDS = {
    "k": "id",
    "small": "CAST(id % 5 AS INT)",
    "flag": "id % 3 = 0",
    "price": "CAST(id / 7 AS DECIMAL(15, 2))",
    "big": "CAST(id AS DECIMAL(38, 0))",
    "day": "DATE'2020-01-01' + CAST(id % 400 AS INT)",
    "at": "timestamp_micros(id * 1000003)",
    "at_here": "CAST(timestamp_micros(id * 1000003) AS TIMESTAMP_NTZ)",
    "word": "nullif(concat('w', id % 11), 'w4')",
    "raw": "CAST(concat('b', id % 13) AS BINARY)",
}


def _of_all_kinds(spark, schema, **properties):
    """Two thousand rows in many row groups, each twice, with NULLs, and of types beside."""
    name = TableName("lake", schema, "kinds")
    small = {
        "format-version": "3",
        "write.delete.mode": "merge-on-read",
        "write.parquet.row-group-size-bytes": "4000",
        "write.parquet.row-group-check-min-record-count": "50",
        "write.parquet.row-group-check-max-record-count": "50",
        **properties,
    }
    listed = ", ".join(f"'{key}' = '{value}'" for key, value in small.items())
    columns = ", ".join(f"{value} AS {column}" for column, value in _KINDS.items())
    spark.sql(
        f"CREATE TABLE {name} TBLPROPERTIES ({listed}) AS SELECT {columns}, array(id) AS several, "
        "id / 3.0D AS ratio FROM (SELECT CAST(r.id DIV 2 AS BIGINT) AS id FROM range(4000) r)"
    )
    return name


def _files(spark, table):
    paths = spark.sql(f"SELECT replace(file_path, 'file:') FROM {table}.data_files")
    return [path for (path,) in paths.collect()]


def test_a_change_of_every_type_is_decoded_as_spark_reads_it(spark, schema):
    table = _of_all_kinds(spark, schema)
    columns = tuple(_KINDS)
    for condition in ("k = 700", "k % 401 = 3 OR k > 1990", "word IS NULL AND k < 900"):
        old = metadata.load(spark, table).current
        spark.sql(f"INSERT INTO {table} SELECT * FROM {table} WHERE k % 97 = 5")
        spark.sql(f"DELETE FROM {table} WHERE {condition}")
        meta = metadata.load(spark, table)
        change = inputs.classify(meta, old, meta.current)
        rows = spark.sql(f"SELECT * FROM {inputs.read(table, meta, change, columns)}").toArrow()
        decoded = tables_of(spark).changed_rows(table, meta, change, columns, 1 << 30)
        both = (decoded.cast(rows.schema), rows)
        as_text = [sorted(map(str, each.to_pylist())) for each in both]
        assert as_text[0] == as_text[1]
        assert len(as_text[0]) > 2
    assert max(pq.read_metadata(each).num_row_groups for each in _files(spark, table)) > 5


def test_what_only_spark_reads_is_left_to_it(spark, schema):
    table = _of_all_kinds(spark, schema)
    old = metadata.load(spark, table).current
    spark.sql(f"DELETE FROM {table} WHERE k = 700")
    meta = metadata.load(spark, table)
    change = inputs.classify(meta, old, meta.current)
    assert _decoded(spark, table, meta, change, ("k",)) == [(700, -2)]
    for columns, most in ((("k",), 100), (("ratio",), 1 << 30), (("several",), 1 << 30), ((), 99)):
        assert _decoded(spark, table, meta, change, columns, most) is None
    for number, (alter, column, found) in enumerate(
        (
            ("RENAME COLUMN k TO key", "key", [(700, -2), (701, -2)]),
            ("ADD COLUMN more INT", "more", None),
        ),
        701,
    ):
        spark.sql(f"ALTER TABLE {table} {alter}")
        spark.sql(f"DELETE FROM {table} WHERE key = {number}")
        meta = metadata.load(spark, table)
        change = inputs.classify(meta, old, meta.current)
        assert _decoded(spark, table, meta, change, (column,)) == found


def test_rows_that_came_and_went_between_two_looks_do_not_show(spark, table):
    old = metadata.load(spark, table).current
    spark.sql(f"INSERT INTO {table} VALUES (7000, 'here'), (7001, 'gone')")
    spark.sql(f"DELETE FROM {table} WHERE k IN (3, 7001)")
    meta = metadata.load(spark, table)
    change = inputs.classify(meta, old, meta.current)
    assert (change.kind, change.appended) == ("positions", True)
    read = inputs.read(table, meta, change, ("k", "v"))
    assert _rows(spark, read) == [(3, "x3", -1), (7000, "here", 1)]


def test_a_file_that_was_dropped_with_its_rows_is_noticed(spark, table):
    old = metadata.load(spark, table).current
    spark.sql(f"DELETE FROM {table} WHERE k = 700")
    spark.sql(f"DELETE FROM {table} WHERE k < 500")
    meta = metadata.load(spark, table)
    assert meta.snapshots[meta.current].count("deleted-data-files") > 0
    read = inputs.read(table, meta, inputs.classify(meta, old, meta.current), ("k", "v"))
    gone = _rows(spark, read)
    assert len(gone) == 501
    assert {weight for _, _, weight in gone} == {-1}


def test_only_the_files_with_news_are_read(spark, table):
    spark.sql(f"DELETE FROM {table} WHERE k = 1")
    old = metadata.load(spark, table).current
    spark.sql(f"DELETE FROM {table} WHERE k = 700")
    spark.sql(f"INSERT INTO {table} VALUES (7000, 'here')")
    meta = metadata.load(spark, table)
    change = inputs.classify(meta, old, meta.current)
    newer = tables_of(spark).newer_rows()
    files = newer.changed(table, meta, change)
    fresh, marked = (
        {k for (k,) in spark.sql(f"SELECT k FROM {view}").collect()}
        for view in (files.fresh, files.marked)
    )
    # The file with the row that was deleted before is not there.
    assert fresh == {7000}
    assert marked < set(range(500, 1000)) - {700}
    assert _rows(spark, inputs.read(table, meta, change, ("k", "v"), files)) == [
        (700, "x0", -1),
        (7000, "here", 1),
    ]
    newer.close()
    assert not spark.catalog.tableExists(files.fresh)


def test_a_change_without_deletes_or_without_new_rows_is_in_one_kind_of_file(spark, table):
    for statement, kinds in (
        ("DELETE FROM {t} WHERE k IN (5, 900)", (False, True)),
        ("UPDATE {t} SET v = 'u' WHERE k = 6", (True, True)),
    ):
        old = metadata.load(spark, table).current
        spark.sql(statement.format(t=table))
        meta = metadata.load(spark, table)
        newer = tables_of(spark).newer_rows()
        files = newer.changed(table, meta, inputs.classify(meta, old, meta.current))
        assert (bool(files.fresh), bool(files.marked)) == kinds
        newer.close()


@pytest.mark.parametrize("few", [0, 500_000])
@pytest.mark.parametrize("staged", [False, True])
def test_rows_that_were_deleted_before_do_not_go_again(spark, table, few, staged, monkeypatch):
    monkeypatch.setattr(changes, "FEW_DELETES", few)
    spark.sql(f"DELETE FROM {table} WHERE k IN (1, 2, 3)")
    old = metadata.load(spark, table).current
    spark.sql(f"DELETE FROM {table} WHERE k = 4")
    meta = metadata.load(spark, table)
    change = changes.classify(meta, old, meta.current)
    newer = tables_of(spark).newer_rows()
    files = newer.changed(table, meta, change) if staged else None
    read = changes.read(table, meta, change, ("k", "v"), files)
    assert _rows(spark, read) == [(4, "x4", -1)]
    newer.close()
