"""What is asked of Java in one call: long answers come in pieces, and say the same as Spark does."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

from dbt_streamsql.quoting import TableName
from dbt_streamsql.storage.iceberg import gateway_work, metadata
from dbt_streamsql.storage.iceberg.commits import row_delta
from dbt_streamsql.storage.iceberg.commits.row_delta import FilesUnknown, RowDelta
from dbt_streamsql.storage.iceberg.provenance import Provenance

pytestmark = pytest.mark.spark


@pytest.fixture
def table(spark, schema):
    """Ten rows in one file, and a property that no answer of the gateway holds in one piece."""
    name = TableName.parse(f"lake.{schema}.`a table`")
    spark.sql(
        f"CREATE TABLE {name.sql} TBLPROPERTIES ('format-version' = '3') AS "
        "SELECT id AS k, concat('ä', id) AS t FROM range(0, 10, 1, 1)"
    )
    return name


def rows(spark, name, branch):
    found = spark.sql(f"SELECT k, t FROM {name.sql} VERSION AS OF '{branch}'").collect()
    return sorted((row.k, row.t) for row in found)


def file_of(spark, name):
    return spark.sql(f"SELECT DISTINCT _file FROM {name.sql}").collect()[0][0]


def test_metadata_of_any_length_is_what_the_table_says(spark, table):
    for length in (10, 3_000, 100_000):
        text = "".join(chr(0x4E00 + n * 7919 % 20_000) for n in range(length))
        spark.sql(f"ALTER TABLE {table.sql} SET TBLPROPERTIES ('long' = '{text}')")
        found = json.loads(gateway_work.metadata(spark, table))
        assert found["properties"]["long"] == text
        assert [field["name"] for field in found["schemas"][0]["fields"]] == ["k", "t"]


def test_a_table_that_is_not_there_has_no_metadata(spark, schema):
    assert metadata.load(spark, TableName.parse(f"lake.{schema}.nothing")) is None


def test_rows_come_and_go_on_a_branch_in_one_commit(spark, table):
    base = metadata.load(spark, table).current
    new = pa.table({"k": [77, None], "t": ["é\u0000😀", None]})
    stamp = Provenance(5, definition="ü" * 70_000)
    gone = {file_of(spark, table): [0, 9]}
    path = row_delta.commit(spark, table, "b1", base, stamp, RowDelta(new, gone))
    found = metadata.load(spark, table)
    there = found.snapshots[found.refs["b1"]]
    assert (there.parent, found.current) == (base, base)
    assert stamp.properties().items() <= there.summary.items()
    expected = [(n, f"ä{n}") for n in range(1, 9)]
    came = spark.sql(
        f"SELECT k, t, _file FROM {table.sql} VERSION AS OF 'b1' WHERE k IS NULL OR k > 9"
    ).collect()
    assert {row._file for row in came} == {path}
    assert {(row.k, row.t) for row in came} == {(77, "é\u0000😀"), (None, None)}
    told = spark.sql(
        "SELECT record_count, readable_metrics.k.* "
        f"FROM {table.sql}.all_data_files WHERE file_path = '{path}'"
    ).first()
    assert (told.record_count, told.value_count, told.null_value_count) == (2, 2, 1)
    assert (told.lower_bound, told.upper_bound) == (77, 77)
    kept = spark.sql(f"SELECT k, t FROM {table.sql} VERSION AS OF 'b1' WHERE k < 10").collect()
    assert sorted(map(tuple, kept)) == expected


def test_a_second_change_of_a_file_keeps_what_the_first_took_away(spark, table):
    base, file = metadata.load(spark, table).current, file_of(spark, table)
    none = pa.table({"k": pa.array([], pa.int64()), "t": pa.array([], pa.string())})
    assert (
        row_delta.commit(spark, table, "b1", base, Provenance(1), RowDelta(none, {file: [3]}))
        == ""
    )
    first = metadata.load(spark, table).refs["b1"]
    row_delta.commit(spark, table, "b1", first, Provenance(2), RowDelta(none, {file: [4]}))
    assert [k for k, _ in rows(spark, table, "b1")] == [0, 1, 2, 5, 6, 7, 8, 9]


def test_rows_of_a_file_that_is_not_there_are_refused_and_nothing_is_changed(spark, table):
    before = metadata.load(spark, table)
    none = pa.table({"k": pa.array([], pa.int64()), "t": pa.array([], pa.string())})
    with pytest.raises(FilesUnknown):
        row_delta.commit(
            spark,
            table,
            "b1",
            before.current,
            Provenance(1),
            RowDelta(none, {"/nowhere.parquet": [1]}),
        )
    assert metadata.load(spark, table).refs == before.refs


def test_the_jobs_of_a_group_and_what_they_read_are_counted(spark, table):
    context = spark.sparkContext
    assert gateway_work.jobs_of(spark, "nobody's") == (0, 0, {})
    context.setJobGroup("ours", "")
    try:
        for _ in range(2):
            spark.sql(f"SELECT max(t) FROM {table.sql}").collect()
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)
    jobs, read, scans = gateway_work.jobs_of(spark, "ours")
    assert jobs >= 2
    assert read > 0
    assert list(scans.values()) == [2], "by the name that Spark shows"


def test_threads_that_ask_first_at_once_have_each_their_answer(spark, table):
    """The gateway takes two classes of one name for each other."""
    gateway_work._compiled.cache_clear()
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: gateway_work.schema(spark, table), range(32)))
    assert len(set(found)) == 1
