"""Views over tables of files are kept from the files that come."""

from __future__ import annotations

import os
import random
import time

import pytest

from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.storage.iceberg.java import is_connect
from tests.functional.views.file_folders import Folder

pytestmark = pytest.mark.spark

_COME = ("insert", "put", "put_late", "put_many_old")
_GO = ("remove", "rewrite", "overwrite")

_VIEWS = {
    "rows": "SELECT k, v, name FROM {a} WHERE v IS NULL OR v > 2",
    "groups": "SELECT k % 3 AS g, count(*) AS n, count(v) AS vs, sum(v) AS total, "
    "min(name) AS low FROM {a} GROUP BY k % 3",
    "alike": "SELECT DISTINCT v, name FROM {b}",
    "top": "SELECT k, v, name FROM {b} ORDER BY v DESC NULLS LAST, k, name LIMIT 5",
    "numbered": "SELECT k, v, name, row_number() OVER (PARTITION BY v ORDER BY k, name) AS at "
    "FROM {a}",
    "labelled": "SELECT d.label, t.name, t.v FROM {a} t LEFT JOIN {labels} d ON d.g = t.k % 3",
    "paired": "SELECT a.k, a.name, b.v FROM {a} a JOIN {b} b ON a.k = b.k",
    "per_label": "SELECT d.label, sum(t.v) AS total, count(*) AS n FROM {labels} d "
    "JOIN (SELECT DISTINCT k, v FROM {b}) t ON d.g = t.k % 3 GROUP BY d.label",
}


@pytest.fixture
def folders(spark, tmp_path):
    """`folders(kind, random)`: a table over a folder of its own."""
    if is_connect(spark):
        pytest.skip("the folder is on the machine of the test")
    made = []

    def make(kind, draw):
        made.append(Folder(spark, kind, tmp_path / f"{len(made)}", draw))
        return made[-1]

    yield make
    for folder in made:
        folder.drop()


def _check(engine, spark, schema, queries):
    for name, query in queries.items():
        view = spark.table(f"lake.{schema}.{name}").select(*_columns(engine, schema, name))
        asked = spark.sql(query)
        more, less = view.exceptAll(asked).collect(), asked.exceptAll(view).collect()
        assert (more, less) == ([], []), name


def _columns(engine, schema, name):
    return [c for c in engine.sql(f"SELECT * FROM lake.{schema}.{name} LIMIT 0").columns]


@pytest.mark.parametrize(
    ("kinds", "seed"), [(("parquet", "csv"), 1), (("json", "orc"), 2)]
)
def test_views_equal_their_queries_and_are_kept_from_files_that_come(
    engine, spark, schema, folders, kinds, seed
):
    draw = random.Random(seed)
    print(f"seed {seed}")
    a, b = (folders(kind, draw) for kind in kinds)
    for folder in (a, b):
        folder.insert()
        folder.put()
    labels = f"lake.{schema}.labels"
    spark.sql(f"CREATE TABLE {labels} AS SELECT id AS g, concat('l', id) AS label FROM range(2)")
    queries = {n: q.format(a=a.name, b=b.name, labels=labels) for n, q in _VIEWS.items()}
    for name, query in queries.items():
        engine.create_materialized_view(f"lake.{schema}.{name}", query)
    _check(engine, spark, schema, queries)
    for step in range(7):
        come = step != 4
        done = {}
        for folder in (a, b):
            done[folder] = draw.choice(_COME if come else _GO)
            getattr(folder, done[folder])()
        if draw.random() < 0.3:
            spark.sql(f"INSERT INTO {labels} VALUES ({step % 3}, 'new')")
        report = engine.advance().tables
        told = [(n.split(".")[-1], r.mode, r.reason) for n, r in report.items()]
        _check(engine, spark, schema, queries)
        wanted = {"append", "incremental", "noop"} if come else {"full"}
        assert {mode for _, mode, _ in told} <= wanted, (done.values(), told)
        assert {r.mode for r in engine.advance().tables.values()} == {"noop"}
    for name in queries:
        assert engine.verify(f"lake.{schema}.{name}") == []
