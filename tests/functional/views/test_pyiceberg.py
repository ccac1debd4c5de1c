"""Tables that pyiceberg writes too, in turns with Spark. It writes no format 3 yet."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from dbt_streamsql.storage.iceberg.java import is_connect

pytestmark = pytest.mark.spark

VIEWS = {
    "rows": "SELECT k, v, n FROM {t} WHERE n % 3 <> 1",
    "groups": "SELECT v, count(*) AS c, sum(n) AS s, max(k) AS high FROM {t} GROUP BY v",
    "joined": "SELECT a.k, b.n FROM {t} a LEFT JOIN {t} b ON a.k = b.n",
}
SPARK = (
    "INSERT INTO {t} SELECT id, concat('s', id % 5), id + {n} FROM range({n}, {n} + 20)",
    "UPDATE {t} SET n = n + 1 WHERE k % 7 = {n} % 7",
    "DELETE FROM {t} WHERE k % 11 = {n} % 11",
)


@pytest.fixture
def theirs(spark):
    """The catalog of Spark's session as pyiceberg has it."""
    if is_connect(spark):
        pytest.skip("the catalog of a server is not told to its clients")
    uri = spark.conf.get("spark.sql.catalog.lake.uri").removeprefix("jdbc:")
    path = uri.partition(":")[2].removeprefix("file:").partition("?")[0]
    warehouse = spark.conf.get("spark.sql.catalog.lake.warehouse")
    return SqlCatalog("lake", uri=f"sqlite:///{path}", warehouse=warehouse)


def _rows(first, count):
    numbers = range(first, first + count)
    names = [None if n % 9 == 0 else f"p{n % 4}" for n in numbers]
    return pa.table({"k": list(numbers), "v": names, "n": [n * 2 for n in numbers]})


def _append(table, n):
    table.append(_rows(n, 15))


def _delete(table, n):
    table.delete(f"k >= {n % 60} and k < {n % 60 + 8}")


def _overwrite(table, n):
    table.overwrite(_rows(n, 6), overwrite_filter=f"v == 'p{n % 4}'")


@pytest.mark.filterwarnings("ignore:Delete operation did not match any records")
@pytest.mark.filterwarnings("ignore:Merge on read is not yet supported")
@pytest.mark.parametrize(
    ("version", "modes"), [(1, "copy-on-write"), (2, "copy-on-write"), (2, "merge-on-read")]
)
def test_a_view_is_its_query_whoever_wrote(engine, schema, theirs, version, modes):
    spark, rng, name = engine.spark, random.Random(f"{version}/{modes}"), f"lake.{schema}.t"
    kinds = ", ".join(f"'write.{what}.mode' = '{modes}'" for what in ("delete", "update", "merge"))
    spark.sql(
        f"CREATE TABLE {name} (k BIGINT, v STRING, n BIGINT)"
        f" TBLPROPERTIES ('format-version' = '{version}', {kinds})"
    )
    spark.sql(SPARK[0].format(t=name, n=0))
    views = {f"lake.{schema}.{view}": text.format(t=name) for view, text in VIEWS.items()}
    for view, query in views.items():
        engine.create_materialized_view(view, query, refresh_mode="incremental_strict")
    turns = [*SPARK, _append, _delete, _overwrite]
    rng.shuffle(turns)
    told = []
    for number, turn in enumerate(turns, 1):
        if isinstance(turn, str):
            spark.sql(turn.format(t=name, n=number * 17))
        else:
            turn(theirs.load_table((schema, "t")), number * 17)
        reports = engine.advance().tables
        told += [report.mode for report in reports.values()]
        for view in views:
            assert engine.verify(view) == [], (turn, view)
    assert set(told) - {"full", "noop"}, told
