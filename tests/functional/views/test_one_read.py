"""A big table that others delete from is read once for its change and for its joined rows, where
the process does not decode its change by itself."""

from __future__ import annotations

import random

import pytest

from dbt_streamsql.storage.iceberg.scans import changes

pytestmark = [pytest.mark.spark, pytest.mark.hunts]

_STATEMENTS = (
    "INSERT INTO {t} SELECT id + {n}, id % 60, concat('n', id % 4) FROM range({n}, {n} + 15)",
    "DELETE FROM {t} WHERE k % 23 = {n} % 23",
    "UPDATE {t} SET v = concat(v, 'u') WHERE k % 19 = {n} % 19",
)
_QUERIES = {
    "rows": "SELECT o.v, l.v AS w, l.k, o.f FROM {s}.o o JOIN {s}.l l ON l.f = o.k WHERE l.v <> 'l3'",
    "groups": (
        "SELECT o.v, count(*) AS n, sum(l.k) AS total, max(l.v) AS most "
        "FROM {s}.l l, {s}.o o, {s}.c c WHERE l.f = o.k AND c.k = o.f GROUP BY o.v"
    ),
}


@pytest.fixture
def reads(monkeypatch, tune, engine, spark, schema):
    """Three merge-on-read tables, o -> c and l -> o by the column f, and the joint reads so far."""
    tune(engine, big_rows=1, decoded_bytes=0)
    modes = ", ".join(f"'write.{w}.mode' = 'merge-on-read'" for w in ("delete", "update", "merge"))
    fill = {"c": (50, "id % 3"), "o": (200, "id % 50"), "l": (1000, "nullif(id % 220, 7)")}
    for table, (rows, reference) in fill.items():
        name = f"lake.{schema}.{table}"
        spark.sql(
            f"CREATE TABLE {name} (k BIGINT, f BIGINT, v STRING) "
            f"TBLPROPERTIES ('format-version' = '3', {modes})"
        )
        spark.sql(
            f"INSERT INTO {name} SELECT id, {reference}, concat('{table}', id % 5) FROM range({rows})"
        )
    found = []
    around = changes.changes_and_matches
    monkeypatch.setattr(
        changes,
        "changes_and_matches",
        lambda name, *args: found.append(name) or around(name, *args),
    )
    return found


@pytest.mark.parametrize("decoded", [0, 1 << 30])
@pytest.mark.parametrize("shape", _QUERIES)
def test_a_join_whose_tables_change_together_stays_equal_to_its_query(
    engine, spark, schema, reads, tune, shape, decoded
):
    tune(engine, decoded_bytes=decoded)
    view = f"lake.{schema}.joined"
    engine.create_materialized_view(view, _QUERIES[shape].format(s=f"lake.{schema}"))
    rng = random.Random(shape)
    for changed in (["o", "l"], ["l", "o"], ["l"], ["o", "l", "c"], ["l", "c"], ["o", "l"]):
        for table in changed:
            for _ in range(2):
                spark.sql(
                    rng.choice(_STATEMENTS).format(
                        t=f"lake.{schema}.{table}", n=rng.randrange(1000)
                    )
                )
        report = engine.advance().tables[view]
        assert report.mode == "incremental", report.reason
        assert engine.verify(view) == []
    assert ("l" in {name.table for name in reads}) is (not decoded)


def test_rows_that_only_a_third_table_asks_for_are_found_too(engine, spark, schema, reads):
    s, view = f"lake.{schema}", f"lake.{schema}.joined"
    engine.create_materialized_view(view, _QUERIES["groups"].format(s=s))
    spark.sql(f"DELETE FROM {s}.l WHERE k = 1")
    spark.sql(f"DELETE FROM {s}.o WHERE k = 2")
    spark.sql(f"INSERT INTO {s}.c VALUES (3, 0, 'again')")
    assert engine.advance().tables[view].mode == "incremental"
    assert engine.verify(view) == []
    assert "l" not in {name.table for name in reads}


def test_a_row_that_was_deleted_before_or_only_passed_by_is_in_neither_version(
    engine, spark, schema, reads
):
    s, view = f"lake.{schema}", f"lake.{schema}.joined"
    spark.sql(f"DELETE FROM {s}.l WHERE f = 2 AND k < 500")
    engine.create_materialized_view(view, _QUERIES["rows"].format(s=s))
    spark.sql(f"INSERT INTO {s}.l VALUES (5000, 2, 'short'), (5001, 2, 'long')")
    spark.sql(f"DELETE FROM {s}.l WHERE k IN (5000, 702)")
    spark.sql(f"UPDATE {s}.o SET v = 'moved' WHERE k = 2")
    assert engine.advance().tables[view].mode == "incremental"
    assert engine.verify(view) == []
    assert [name.table for name in reads] == ["l"]
