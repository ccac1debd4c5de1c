"""Views over tables of files are kept from the files that come."""

from __future__ import annotations

import os
import random
import time
import uuid
from collections import Counter

import pytest

from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.storage.java import is_connect
from tests.functional.views.file_folders import Folder
from tests.support.clock import ahead
from tests.support.steps import observing

pytestmark = [pytest.mark.spark, pytest.mark.hunts]

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
        found = engine.sql(f"SELECT * FROM lake.{schema}.{name}").collect()
        assert Counter(found) == Counter(spark.sql(query).collect()), name


@pytest.mark.parametrize(("kinds", "seed"), [(("parquet", "csv"), 1), (("json", "orc"), 2)])
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
    for step in range(4):
        come = step != 2
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


@pytest.fixture
def one(folders):
    """A table of Parquet files with two of them."""
    folder = folders("parquet", random.Random(7))
    folder.insert()
    folder.put()
    return folder


def _view(engine, schema, folder, query="SELECT k, v, name FROM {t}"):
    view = f"lake.{schema}.v"
    engine.create_materialized_view(view, query.format(t=folder.name))
    return view


def _equal(engine, spark, view, query):
    found = engine.sql(f"SELECT * FROM {view}", consistency="read_committed").collect()
    return Counter(found) == Counter(spark.sql(query).collect())


@pytest.mark.parametrize("kind", ["parquet", "avro"])
def test_a_file_that_comes_while_an_epoch_runs_belongs_to_the_next_one(
    engine, spark, schema, folders, kind
):
    one = folders(kind, random.Random(7))
    one.put()
    view = _view(engine, schema, one)
    one.insert()
    expected = Counter(spark.sql(f"SELECT k, v, name FROM {one.name}").collect())
    came = []

    def put(step, moment):
        if step == "barrier.begin" and not came:
            one.put_late()
            came.append(step)

    with observing(put):
        assert engine.advance().tables[view].mode == "append"
    assert came
    assert Counter(engine.sql(f"SELECT * FROM {view}").collect()) == expected
    assert engine.verify(view) == []
    assert engine.advance().tables[view].mode == "append"
    assert _equal(engine, spark, view, f"SELECT k, v, name FROM {one.name}")


def test_only_files_that_came_are_read(engine, spark, schema, one):
    view = _view(engine, schema, one)
    for file in one.files():
        told = file.stat()
        file.write_bytes(b"x" * told.st_size)
        os.utime(file, ns=(told.st_atime_ns, told.st_mtime_ns))
    one.put()
    report = engine.advance().tables[view]
    assert (report.mode, report.jobs) == ("append", 1)


def test_a_file_that_may_have_been_replaced_without_a_sign_is_read_once_more(
    engine, spark, schema, one
):
    view = _view(engine, schema, one)
    newest = one.put()
    with ahead(engine) as clock:
        now = int(time.time() + 1000)
        os.utime(newest, (now, now))
        clock.jump(1000)
        assert engine.advance().tables[view].mode == "append"
        clock.jump(10)
        report = engine.advance().tables[view]
        assert (report.mode, "so new" in report.reason) == ("full", True)
        assert engine.advance().tables[view].mode == "noop"


def test_a_table_that_was_altered_is_read_anew(engine, spark, schema, folders):
    folder = folders("csv", random.Random(3))
    folder.insert()
    view = _view(engine, schema, folder, "SELECT name FROM {t}")
    spark.sql(f"DROP TABLE {folder.name}")
    spark.sql(
        f"CREATE TABLE {folder.name} (name STRING, v BIGINT) USING csv LOCATION '{folder.folder}'"
    )
    assert engine.advance().tables[view].mode == "full"
    assert _equal(engine, spark, view, f"SELECT name FROM {folder.name}")
    spark.sql(f"ALTER TABLE {folder.name} ADD COLUMNS (more STRING)")
    folder.put()
    assert engine.advance().tables[view].mode == "full"
    assert _equal(engine, spark, view, f"SELECT name FROM {folder.name}")
    folder.put()
    assert engine.advance().tables[view].mode == "append"


def test_where_the_list_does_not_tell_the_view_is_computed_in_full_and_says_why(
    engine, spark, schema, one
):
    query = "SELECT k, v, name FROM {t}"
    view = _view(engine, schema, one)
    inner = one.folder / "k=1"
    inner.mkdir()
    (inner / "_SUCCESS").touch()
    os.utime(inner / "_SUCCESS", (time.time() - 60,) * 2)
    report = engine.advance().tables[view]
    assert report.mode == "full"
    assert "its folder contains a subfolder, k=1" in engine.explain(view)
    assert engine.advance().tables[view].mode == "noop"
    (inner / "_SUCCESS").unlink()
    inner.rmdir()
    report = engine.advance().tables[view]
    assert report.mode == "full", "its plan is another one again"
    assert report.reason
    one.put()
    assert engine.advance().tables[view].mode == "append"
    assert _equal(engine, spark, view, query.format(t=one.name))


def test_a_query_may_ask_for_the_file_of_a_row(engine, spark, schema, one):
    query = "SELECT k, _metadata.file_name AS at FROM {t}"
    view = _view(engine, schema, one, query)
    one.put()
    assert engine.advance().tables[view].mode == "full"
    assert _equal(engine, spark, view, query.format(t=one.name))
    assert "_metadata" in engine.explain(view)


def test_a_query_reads_the_files_of_its_barrier_or_says_that_they_are_gone(
    engine, spark, schema, one
):
    view = _view(engine, schema, one, "SELECT count(*) AS n FROM {t}")
    (first, *_) = one.files()
    both = f"SELECT n, (SELECT count(*) FROM {one.name}) AS now FROM {view}"
    one.insert()
    ((n, now),) = engine.sql(both, consistency="repeatable_read").collect()
    assert n == now
    first.unlink()
    with pytest.raises(StreamSqlError, match="CONSISTENCY_UNAVAILABLE"):
        engine.sql(both, consistency="repeatable_read")
    engine.advance()
    ((n, now),) = engine.sql(both, consistency="repeatable_read").collect()
    assert n == now


def test_files_in_partitions_come_and_go(engine, spark, schema, tmp_path):
    if is_connect(spark):
        pytest.skip("the folder is on the machine of the test")
    table = f"spark_catalog.default.t_{uuid.uuid4().hex[:8]}"
    spark.sql(
        f"CREATE TABLE {table} (n INT, day DATE, `a b` STRING) USING parquet "
        f"PARTITIONED BY (day, `a b`) LOCATION '{tmp_path / 'parts'}'"
    )
    query = f"SELECT n, day, `a b` AS of FROM {table} WHERE n > 0"
    view, counts = f"lake.{schema}.v", f"lake.{schema}.counts"

    def put(*rows):
        spark.sql(f"INSERT INTO {table} VALUES {', '.join(rows)}")
        for file in (tmp_path / "parts").rglob("part-*"):
            if file.stat().st_mtime > time.time() - 1000:
                os.utime(file, (time.time() - 5000 + next(ticks),) * 2)

    ticks = iter(range(100))
    put("(1, DATE'2024-01-01', 'x y%')", "(2, NULL, 'ü')")
    engine.create_materialized_view(view, query)
    grouped = f"SELECT day, count(*) AS c, sum(n) AS s FROM {table} GROUP BY day"
    engine.create_materialized_view(counts, grouped)
    modes = []
    for change in (
        lambda: put("(3, DATE'2024-01-01', 'x y%')"),
        lambda: put("(4, DATE'2024-02-01', 'z'), (5, NULL, NULL)"),
        lambda: spark.sql(
            f"ALTER TABLE {table} DROP PARTITION (day = DATE'2024-02-01', `a b` = 'z')"
        ),
        lambda: spark.sql(
            f"ALTER TABLE {table} ADD PARTITION (day = DATE'2024-03-01', `a b` = 'q') "
            f"LOCATION '{tmp_path / 'elsewhere'}'"
        ),
        lambda: put("(6, DATE'2024-03-01', 'q')"),
    ):
        change()
        report = engine.advance().tables
        modes.append(report[view].mode)
        assert _equal(engine, spark, view, query)
        assert _equal(engine, spark, counts, grouped)
    assert modes == ["append", "append", "full", "noop", "append"]
    spark.sql(f"DROP TABLE {table}")


def test_lines_of_text_files_are_kept_from_the_files_that_come(engine, spark, schema, tmp_path):
    if is_connect(spark):
        pytest.skip("the folder is on the machine of the test")
    folder = tmp_path / "log lines"
    folder.mkdir()

    def put(name, *lines):
        (folder / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        os.utime(folder / name, (time.time() - 5000 + next(ticks),) * 2)

    ticks = iter(range(100))
    put("a.log", "INFO one", "WARN ü", "")
    table, view = f"spark_catalog.default.t_{uuid.uuid4().hex[:8]}", f"lake.{schema}.v"
    spark.sql(f"CREATE TABLE {table} (value STRING) USING text LOCATION '{folder}'")
    query = f"SELECT split(value, ' ')[0] AS level, count(*) AS n FROM {table} GROUP BY 1"
    engine.create_materialized_view(view, query)
    put("b 1%.log", "INFO two", "ERROR it's", "INFO three")
    assert engine.advance().tables[view].mode == "incremental"
    assert _equal(engine, spark, view, query)
    assert engine.verify(view) == []
    spark.sql(f"DROP TABLE {table}")


def test_rows_of_files_have_no_age_so_a_view_that_forgets_is_refused(engine, schema, one):
    query = f"SELECT a.k, b.v FROM {one.name} a JOIN {one.name} b ON a.k = b.k"
    with pytest.raises(StreamSqlError) as caught:
        engine.create_materialized_view(f"lake.{schema}.v", query, state_ttl="1 day")
    assert caught.value.code == "STATE_TTL_INVALID"
    assert one.name in str(caught.value)


def test_a_path_in_the_place_of_a_table_names_the_other_ways(engine, schema, tmp_path):
    with pytest.raises(StreamSqlError) as refused:
        engine.create_materialized_view(f"lake.{schema}.v", f"SELECT * FROM csv.`{tmp_path}`")
    assert refused.value.code == "TABLE_MISSING"
    assert f"CREATE TABLE … USING csv LOCATION '{tmp_path}'" in str(refused.value)
    assert "as a stream" in str(refused.value)


def test_a_stream_of_a_table_of_files_is_refused_with_the_other_ways(engine, schema, one):
    source = {"connector": "table", "options": {"table": one.name}}
    with pytest.raises(StreamSqlError) as caught:
        engine.create_streaming_table(
            f"lake.{schema}.s", f"SELECT k, v FROM {one.name}", stream=one.name, source=source
        )
    assert caught.value.code == "SQL_UNSUPPORTED"
    assert "connector `files`" in str(caught.value)
