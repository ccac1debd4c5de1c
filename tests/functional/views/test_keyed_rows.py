"""Rows with some keys are found in the files of a table, by the process: those that Spark finds."""

from __future__ import annotations

import datetime as dt
import random

import pyarrow as pa
import pytest

from dbt_streamsql.quoting import TableName
from dbt_streamsql.runtime.core.stored_rows import PLACE_IN_NUMBERS, StoredRows
from dbt_streamsql.storage.iceberg import metadata
from dbt_streamsql.storage.iceberg.scans import keyed_rows

pytestmark = [pytest.mark.spark, pytest.mark.hunts]

KINDS = {
    "whole": (pa.int64(), [3, 44, 999, 10_000, -5, 1 << 40]),
    "small": (pa.int32(), [0, 7, 12, 400]),
    "tiny": (pa.int64(), [3, 300]),
    "day": (pa.date32(), [dt.date(2026, 1, 9), dt.date(1999, 1, 1)]),
    "spread": (pa.int16(), [2, 5]),
    "note": (pa.string(), ["n44", "n999", "n2999", "n3", "n", "", "ü"]),
}
"""By column: the type of the keys, which may be another one, and some of them."""


@pytest.fixture
def table(spark, schema):
    """Three files of many row groups, with rows deleted in two of them."""
    name = TableName("lake", schema, "keyed")
    spark.sql(
        f"CREATE TABLE {name.sql} (id BIGINT, whole BIGINT, small INT, tiny INT, day DATE, "
        "spread BIGINT, note STRING) TBLPROPERTIES ('format-version' = '3', "
        "'write.delete.mode' = 'merge-on-read', 'write.parquet.row-group-size-bytes' = '2000', "
        "'write.parquet.row-group-check-min-record-count' = '10', "
        "'write.parquet.row-group-check-max-record-count' = '10')"
    )
    for first in (0, 1000, 2000):
        spark.sql(
            f"INSERT INTO {name.sql} SELECT id, id, CAST(nullif(id % 500, 12) AS INT), "
            "CAST(id % 120 AS INT), DATE'2026-01-01' + CAST(id % 30 AS INT), "
            f"hash(id) % 7, concat('n', id) FROM range({first}, {first + 1000}, 1, 1)"
        )
    spark.sql(f"DELETE FROM {name.sql} WHERE id % 11 = 3 AND id < 1500")
    return name


def found(spark, name, column, keys, size=1 << 30, rows=1 << 30):
    snapshot = metadata.load(spark, name).current
    limit = keyed_rows.Limit(size, rows)
    asked = keyed_rows.Asked(("id", "note"), column, keys, limit)
    return keyed_rows.read(spark, name, snapshot, asked)


def by_spark(spark, name, column, keys):
    place = ", ".join(f"{value} AS {key}" for key, value in PLACE_IN_NUMBERS.items())
    kinds = {dt.date: "DATE'{}'", str: "'{}'"}
    asked = ", ".join(kinds.get(type(key), "{}").format(key) for key in keys)
    sql = f"SELECT id, note, {place} FROM {name.sql} WHERE {column} IN ({asked})"
    return sorted(map(tuple, spark.sql(sql).collect()))


@pytest.mark.parametrize("column", KINDS)
def test_rows_and_places_are_those_that_spark_finds(spark, table, column):
    kind, keys = KINDS[column]
    parts = found(spark, table, column, pa.array(keys, kind))
    rows = StoredRows.of_files(parts).rows
    wanted = by_spark(spark, table, column, keys)
    assert sorted(tuple(row.values()) for row in rows.to_pylist()) == wanted
    assert wanted or column == "none"


def test_only_row_groups_with_a_key_are_decoded(spark, table, monkeypatch):
    decoded = []
    one = keyed_rows._taken
    monkeypatch.setattr(keyed_rows, "_taken", lambda *args: decoded.append(args) or one(*args))
    parts = found(spark, table, "whole", pa.array([44, 2500], pa.int64()))
    assert sum(len(part.rows) for part in parts) == 2
    assert len(decoded) == 2


def test_no_row_is_a_result_too(spark, table):
    for keys in ([], [1 << 50], [3]):
        (part,) = found(spark, table, "whole", pa.array(keys, pa.int64()))
        assert part.rows.schema.names == ["id", "note"]
        assert len(part.rows) == 0, "id 3 is deleted"


@pytest.mark.parametrize(
    "case",
    [
        {"keys": pa.array(["3"])},
        {"keys": pa.array([3.0])},
        {"column": "note", "keys": pa.array([3])},
        {"column": "day", "keys": pa.array([3])},
        {"column": "missing", "keys": pa.array([3])},
        {"keys": pa.array([44]), "size": 10},
        {"keys": pa.array([3, 5]), "column": "spread", "rows": 10},
        {"keys": pa.array([44, 1044]), "rows": 1},
    ],
    ids=[
        *("texts", "doubles", "a column of texts", "a column of dates", "no column"),
        *("many bytes", "many rows of each key", "many rows"),
    ],
)
def test_what_the_process_cannot_compare_is_left_to_spark(spark, table, case):
    assert found(spark, table, **{"column": "whole", **case}) is None


QUERIES = {
    "rows": "SELECT l.id, o.v, l.w FROM {s}.l JOIN {s}.o ON o.k = l.k",
    "kept rows": "SELECT l.id, o.v FROM {s}.l LEFT JOIN {s}.o ON o.k = l.k WHERE l.id % 9 > 0",
    "groups": "SELECT l.k, count(*) AS n, sum(l.w) AS total FROM {s}.l GROUP BY l.k",
    "groups by texts": "SELECT concat('n', coalesce(l.k, 0)) AS name, count(*) AS n FROM {s}.l "
    "GROUP BY 1",
    "means": "SELECT l.k, avg(CAST(l.w AS DECIMAL(9, 2))) AS mean, max(l.w) AS most "
    "FROM {s}.l GROUP BY l.k",
    "two keys": "SELECT l.k, o.v, sum(l.w) AS total, count(*) AS n FROM {s}.l JOIN {s}.o "
    "ON o.k = l.k GROUP BY l.k, o.v",
    "three tables": "SELECT l.id, o.v, c.n FROM {s}.l JOIN {s}.o ON o.k = l.k "
    "JOIN {s}.c ON c.v = o.v",
    "few of three": "SELECT l.id, c.n FROM {s}.l JOIN {s}.o ON o.k = l.k AND o.v % 3 = 1 "
    "JOIN {s}.c ON c.v = o.v AND c.v = l.w AND c.n < 4",
    "either way": "SELECT c.n, count(*) AS lines, sum(l.w) AS total FROM {s}.l, {s}.o, {s}.c "
    "WHERE c.v = o.v AND (o.k = l.k AND l.w > 2 OR l.w < 2 AND (o.k = l.k AND o.v > 9)) "
    "GROUP BY c.n",
    "firsts": "SELECT k, id, w FROM {s}.l QUALIFY row_number() OVER (PARTITION BY k "
    "ORDER BY w DESC, id) = 1",
}
STATEMENTS = (
    "INSERT INTO {s}.l SELECT id + {n}, nullif(id % 60, 5), id % 7 FROM range({n}, {n} + 15)",
    "DELETE FROM {s}.l WHERE id % 23 = {n} % 23",
    "UPDATE {s}.l SET w = w + 1, k = k + 1 WHERE id % 19 = {n} % 19",
    "UPDATE {s}.o SET v = v + 1 WHERE k % 13 = {n} % 13",
    "DELETE FROM {s}.o WHERE k % 17 = {n} % 17",
    "INSERT INTO {s}.o VALUES ({n} % 60, {n}), (NULL, 1)",
    "UPDATE {s}.c SET n = n + 1 WHERE v % 5 = {n} % 5",
    "DELETE FROM {s}.c WHERE v % 29 = {n} % 29",
)


@pytest.fixture
def asked(engine, spark, schema, tune, monkeypatch):
    """Tables with NULL as a key and keys that several rows have, and what was looked up."""
    tune(engine, big_rows=0, held_rows=-1, compared_rows=-1)
    s = f"lake.{schema}"
    for name, columns, rows in (
        ("l", "id BIGINT, k BIGINT, w BIGINT", "id, nullif(id % 60, 7), id % 5 FROM range(500)"),
        ("o", "k INT, v BIGINT", "nullif(id % 70, 3), id FROM range(90)"),
        ("c", "v INT, n BIGINT", "nullif(id % 80, 4), id % 6 FROM range(95)"),
    ):
        spark.sql(
            f"CREATE TABLE {s}.{name} ({columns}) TBLPROPERTIES ('format-version' = '3', "
            "'write.delete.mode' = 'merge-on-read', 'write.update.mode' = 'merge-on-read')"
        )
        spark.sql(f"INSERT INTO {s}.{name} SELECT {rows}")
    tables = []
    read = keyed_rows.read

    def recorded(spark, name, *arguments):
        rows = read(spark, name, *arguments)
        tables.append((name.table, rows is not None))
        return rows

    monkeypatch.setattr(keyed_rows, "read", recorded)
    return tables


def test_views_equal_their_queries_after_every_change(engine, spark, schema, asked):
    s, draw = f"lake.{schema}", random.Random(7)
    views = {f"{s}.v{number}": sql.format(s=s) for number, sql in enumerate(QUERIES.values())}
    for view, sql in views.items():
        engine.create_materialized_view(view, sql, refresh_mode="incremental_strict")
    for _ in range(8):
        for statement in draw.sample(STATEMENTS, 2):
            spark.sql(statement.format(s=s, n=draw.randrange(1000)))
        engine.advance()
        for view in views:
            assert engine.verify(view) == [], view
    read = {name for name, by_process in asked if by_process}
    assert {"l", "o", "c"} <= read, "inputs are looked up"
    own = {f"v{number}" for number, what in enumerate(QUERIES) if what != "either way"}
    assert own <= read, "so are the views' own rows"
