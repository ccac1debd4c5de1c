"""Views of tables of files without versions, in a process that stays open."""

from __future__ import annotations

import os
import time
import uuid

import pytest

from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.storage.java import is_connect

pytestmark = pytest.mark.spark

_FORMATS = ("parquet", "csv", "json", "orc")
_AGED = 60
"""Seconds: a file that is older than some is settled."""


@pytest.fixture
def source(spark, tmp_path):
    """`source(format)`: a table over a folder that others write; `source.add(numbers)` and
    `source.remove()` are what they do."""
    if is_connect(spark):
        pytest.skip("the folder is on the machine of the test")
    made = []

    class Source:
        def __init__(self, kind):
            self.kind, self.files = kind, []
            self.folder = tmp_path / kind
            self.folder.mkdir()
            self.name = f"spark_catalog.default.t_{uuid.uuid4().hex[:8]}"
            self.add(range(3))
            spark.sql(f"CREATE TABLE {self.name} (n BIGINT) USING {kind} LOCATION '{self.folder}'")
            made.append(self.name)

        def add(self, numbers):
            out = tmp_path / uuid.uuid4().hex
            frame = spark.createDataFrame([(n,) for n in numbers], "n BIGINT")
            frame.coalesce(1).write.format(self.kind).save(str(out))
            (written,) = (f for f in out.iterdir() if f.name.startswith("part-"))
            file = written.rename(self.folder / written.name)
            os.utime(file, (time.time() - _AGED,) * 2)
            self.files.append(file)

        def remove(self):
            self.files.pop().unlink()

    yield Source
    for name in made:
        spark.sql(f"DROP TABLE {name}")


def _numbers(engine, view):
    return sorted(row[0] for row in engine.sql(f"SELECT n FROM {view}").collect())


@pytest.mark.parametrize("kind", _FORMATS)
def test_files_that_come_and_go_are_seen_and_without_news_nothing_is_computed(
    engine, schema, source, kind
):
    files, view = source(kind), f"lake.{schema}.v"
    engine.create_materialized_view(view, f"SELECT n FROM {files.name} WHERE n <> 100")
    assert _numbers(engine, view) == [0, 1, 2]
    assert engine.advance().tables[view].mode == "noop"
    files.add([7])
    assert engine.verify(view) == []
    assert engine.advance().tables[view].mode == "append"
    assert _numbers(engine, view) == [0, 1, 2, 7]
    assert engine.verify(view) == []
    files.remove()
    with pytest.raises(StreamSqlError, match="CONSISTENCY_UNAVAILABLE"):
        engine.verify(view)
    report = engine.advance().tables[view]
    assert (report.mode, "removed" in report.reason) == ("full", True)
    assert _numbers(engine, view) == [0, 1, 2]
    assert engine.verify(view) == []
    assert engine.advance().tables[view].mode == "noop"


def test_a_file_that_was_written_just_now_is_looked_at_once_more(engine, schema, source):
    files, view = source("json"), f"lake.{schema}.v"
    os.utime(files.files[0], (int(time.time()),) * 2)
    engine.create_materialized_view(view, f"SELECT n FROM {files.name}")
    assert engine.advance().tables[view].mode == "full"


def test_news_of_another_input_are_seen_beside_files_that_stayed(engine, spark, schema, source):
    files, view = source("parquet"), f"lake.{schema}.v"
    spark.sql(f"CREATE TABLE lake.{schema}.names AS SELECT 1L AS n, 'one' AS name")
    query = f"SELECT n, name FROM {files.name} JOIN lake.{schema}.names USING (n)"
    engine.create_materialized_view(view, query)
    assert engine.advance().tables[view].mode == "noop"
    spark.sql(f"INSERT INTO lake.{schema}.names VALUES (2, 'two')")
    assert engine.advance().tables[view].mode == "append"
    assert _numbers(engine, view) == [1, 2]


def test_dbt_reads_a_source_of_files_as_it_is_now(project, source):
    files = source("csv")
    catalog, schema, table = files.name.split(".")
    project.write(
        "models/sources.yml",
        f"""
        version: 2
        sources:
          - {{name: raw, database: {catalog}, schema: {schema}, tables: [{{name: {table}}}]}}
        """,
    )
    select = f"select n from {{{{ source('raw', '{table}') }}}}"
    project.write("models/v.sql", "{{ config(materialized='materialized_view') }} " + select)
    project.write("models/t.sql", "{{ config(materialized='table') }} " + select)
    for numbers in ([], [7], [8, 9]):
        if numbers:
            files.add(numbers)
        assert project.dbt("run").ok
        expected = sorted(n for f in files.files for n in map(int, f.read_text().split()))
        for model in ("v", "t"):
            assert [n for (n,) in project.sql(f"SELECT n FROM lake.shop.{model} ORDER BY n")] == (
                expected
            )
