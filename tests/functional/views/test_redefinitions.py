"""What becomes of the rows of a view whose definition is edited: the planner's four verdicts."""

from __future__ import annotations

import os
from collections import Counter
from random import Random

import pytest

from dbt_streamsql import Engine
from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.meta.model.stored_definition import StoredDefinition
from dbt_streamsql.plan.definition.redefinition import (
    APPEND,
    COMPATIBLE,
    METADATA,
    SHADOW,
)

pytestmark = [pytest.mark.spark, pytest.mark.hunts]

SEED = int(os.environ.get("STREAMSQL_SEED", "1000"))
PAIRS = 10

GROUPS = "SELECT k, sum(a) AS s, count(*) AS n FROM {o} GROUP BY k"
LINES = "SELECT id, k, a, d FROM {o} WHERE a > 1"
RANKED = "SELECT id, k, row_number() OVER (PARTITION BY k ORDER BY a) AS r FROM {o}"

CASES = {
    # -- nothing is computed
    "alias": (
        GROUPS,
        "SELECT x.k, sum(x.a) AS s, count(*) AS n FROM {o} x GROUP BY x.k",
        METADATA,
    ),
    "conditions": (
        LINES + " AND id < 90",
        "SELECT id, k, a, d FROM {o} WHERE id < 90 AND a > 1",
        METADATA,
    ),
    # -- columns at the end
    "average": (
        GROUPS,
        "SELECT k, sum(a) AS s, count(*) AS n, avg(b) AS m FROM {o} GROUP BY k",
        SHADOW,
    ),
    "difference": (
        GROUPS,
        "SELECT k, sum(a) AS s, count(*) AS n, sum(a) - count(*) AS m FROM {o} GROUP BY k",
        APPEND,
    ),
    "hidden": (
        "SELECT k, avg(d) AS m FROM {o} GROUP BY k",
        "SELECT k, avg(d) AS m, sum(d) AS s, count(d) AS n FROM {o} GROUP BY k",
        APPEND,
    ),
    "derived": (
        "SELECT k, sum(d) AS s, count(d) AS n FROM {o} GROUP BY k",
        "SELECT k, sum(d) AS s, count(d) AS n, avg(d) AS m FROM {o} GROUP BY k",
        APPEND,
    ),
    "upper": (LINES, "SELECT id, k, a, d, upper(k) AS u FROM {o} WHERE a > 1", APPEND),
    # -- other rows and columns
    "dropped": (
        GROUPS,
        "SELECT n, k FROM (SELECT k, count(*) AS n FROM {o} GROUP BY k)",
        COMPATIBLE,
    ),
    "factor": (
        "SELECT k, sum(a) * 2 AS s FROM {o} GROUP BY k",
        "SELECT k, sum(a) * 3 AS s FROM {o} GROUP BY k",
        COMPATIBLE,
    ),
    "having": (GROUPS, GROUPS + " HAVING sum(a) > 5", COMPATIBLE),
    "where": (LINES, LINES + " AND d > 2", COMPATIBLE),
    "grouped": (
        LINES,
        "SELECT k, count(*) AS n, max(d) AS m FROM {o} WHERE a > 1 GROUP BY k",
        COMPATIBLE,
    ),
    "limited": (LINES, LINES + " ORDER BY id DESC LIMIT 2", COMPATIBLE),
    "ranked": (RANKED, RANKED + " QUALIFY r = 1", COMPATIBLE),
    # -- what looks like it and is not
    "no having": (GROUPS + " HAVING sum(a) > 5", GROUPS, SHADOW),
    "less where": (LINES + " AND d > 2", LINES, SHADOW),
    "below": (
        GROUPS,
        "SELECT k, sum(a) AS s, count(*) AS n FROM {o} WHERE a > 1 GROUP BY k",
        SHADOW,
    ),
    "keys": (GROUPS, "SELECT b AS k, sum(a) AS s, count(*) AS n FROM {o} GROUP BY b", SHADOW),
    "distinct": (
        GROUPS,
        "SELECT k, sum(DISTINCT a) AS s, count(*) AS n FROM {o} GROUP BY k",
        SHADOW,
    ),
    "nulls": (
        "SELECT k, sum(b) AS s FROM {o} GROUP BY k HAVING k > 'a'",
        "SELECT k, count(b) AS s FROM {o} GROUP BY k HAVING k > 'a'",
        SHADOW,
    ),
    "ties": (
        "SELECT id, k, a, row_number() OVER (PARTITION BY k ORDER BY a) AS r FROM {o}",
        "SELECT k, a, row_number() OVER (PARTITION BY k ORDER BY a) AS r FROM {o}",
        SHADOW,
    ),
    "order": (RANKED, RANKED.replace("ORDER BY a", "ORDER BY d"), SHADOW),
    "clock": (LINES + " AND d < year(now())", LINES + " AND d < year(now()) AND d > 2", SHADOW),
}


@pytest.fixture
def orders(spark, schema):
    name = f"lake.{schema}.orders"
    spark.sql(
        f"CREATE TABLE {name} (id INT, k STRING, a INT NOT NULL, b INT, d DECIMAL(8,2)) "
        "TBLPROPERTIES ('format-version'='3', 'write.delete.mode'='merge-on-read')"
    )
    spark.sql(
        f"INSERT INTO {name} VALUES (1, 'x', 1, NULL, 1.5), (2, 'x', 2, 3, NULL), "
        "(3, 'y', 3, NULL, 3.25), (4, NULL, 4, 2, 2.5), (5, 'y', 3, 1, 9), (6, 'z', 9, 9, 9)"
    )
    return name


def _move(spark, orders, number):
    """Changes of every kind: a group comes, another goes, rows are corrected."""
    spark.sql(
        f"INSERT INTO {orders} VALUES ({number}, 'x', 5, NULL, 5), ({number + 1}, 'n', 2, 1, NULL)"
    )
    spark.sql(f"DELETE FROM {orders} WHERE id % 7 = {number % 7}")
    spark.sql(f"UPDATE {orders} SET a = a + 1, d = 4 WHERE id = {number % 5 + 1}")


def _redefine(engine, schema, pairs):
    """Define all old queries in one epoch and all new ones in the next; the reports."""
    for side in (0, 1):
        engine.begin()
        reports = {
            name: engine.create_materialized_view(f"lake.{schema}.{name}", pair[side])
            for name, pair in pairs.items()
        }
        engine.publish()
        if side == 0:
            yield None
    yield reports


def _wrong(engine, schema, names):
    return {name: wrong for name in names if (wrong := engine.verify(f"lake.{schema}.{name}"))}


def test_the_verdicts_and_rows_of_a_changed_source(spark, engine, schema, orders):
    """The sources change before the definition does, between two epochs, and after it."""
    pairs = {
        f"v{at}": (old.format(o=orders), new.format(o=orders))
        for at, (old, new, _) in enumerate(CASES.values())
    }
    epochs = _redefine(engine, schema, pairs)
    next(epochs)
    _move(spark, orders, 10)
    reports = next(epochs)
    verdicts = dict(zip(CASES, (r.definition for r in reports.values()), strict=True))
    assert verdicts == {name: verdict for name, (_, _, verdict) in CASES.items()}
    for name, report in zip(CASES, reports.values(), strict=True):
        assert report.reason, name
        assert (report.mode == "full") is (CASES[name][2] == SHADOW), (name, report.reason)
    assert _wrong(engine, schema, pairs) == {}
    _move(spark, orders, 20)
    for name, report in engine.advance().tables.items():
        if name.startswith(f"lake.{schema}."):
            assert report.mode != "full", (name, report.reason)
            assert report.definition == ""
    assert _wrong(engine, schema, pairs) == {}


def _pair(random):
    """Two queries over one table that have parts in common, the first of more columns."""
    lines, where = random.random() < 0.3, random.choice(("", " WHERE a > 1"))
    more = random.choice(("", "", "", f"{' AND' if where else ' WHERE'} a < 9"))
    having = random.choice(("", "", " HAVING count(*) > 1", " HAVING sum(a) > 4"))
    if lines:
        columns = ("id", "k", "a", "d", "b", "a + 1 AS e", "d * 2 AS f", "upper(k) AS u")
        old, new = (random.sample(columns, size) for size in (6, random.randint(2, 6)))
        return tuple(
            f"SELECT {', '.join(chosen)} FROM {{o}}{condition}"
            for chosen, condition in ((old, where), (new, where + more))
        )
    calls = ("sum(a) AS s", "count(*) AS n", "avg(b) AS m", "count(b) AS c", "sum(b) AS t")
    calls += ("max(d) AS h", "avg(d) AS g", "sum(d) + 1 AS p", "sum(d) AS q")
    old, new = (random.sample(calls, size) for size in (6, random.randint(1, 5)))
    return (
        f"SELECT k, {', '.join(old)} FROM {{o}}{where} GROUP BY k",
        f"SELECT k, {', '.join(new)} FROM {{o}}{where}{more} GROUP BY k{having}",
    )


def test_random_pairs_of_definitions_equal_their_queries(spark, engine, schema, orders):
    random = Random(SEED)
    pairs = {
        f"v{at}": tuple(query.format(o=orders) for query in _pair(random)) for at in range(PAIRS)
    }
    epochs = _redefine(engine, schema, pairs)
    next(epochs)
    _move(spark, orders, 10)
    reports = next(epochs)
    found = Counter(report.definition for report in reports.values())
    assert _wrong(engine, schema, pairs) == {}, (pairs, reports)
    _move(spark, orders, 23)
    engine.advance()
    assert _wrong(engine, schema, pairs) == {}, (pairs, reports)
    assert SEED != 1000 or (found[SHADOW] and found[COMPATIBLE]), found


def test_rows_of_a_new_definition_do_not_come_from_the_source(spark, engine, schema, orders):
    """Without a change of the source its version is not even asked for rows."""
    view, query = f"lake.{schema}.v", GROUPS.format(o=orders)
    engine.create_materialized_view(view, query)
    before = dict(engine.store.latest(view).inputs)
    _, plan, change = engine.tables.definitions.define(
        engine.store.jobs()[view], view, f"{query} HAVING n > 1", "auto", "", StoredDefinition()
    )
    assert plan.mode == "incremental"
    assert change.verdict == COMPATIBLE
    assert "orders" not in change.sql
    report = engine.create_materialized_view(view, f"{query} HAVING n > 1")
    assert (report.mode, report.rows_read) == ("incremental", 0)
    assert dict(engine.store.latest(view).inputs) == before
    assert engine.verify(view) == []


def test_types_are_those_of_the_query_although_the_table_has_wider_ones(engine, schema, orders):
    """Iceberg keeps a TINYINT as an INT; what is computed from it must overflow all the same."""
    view = f"lake.{schema}.v"
    inner = f"SELECT id, CAST(a AS TINYINT) AS b FROM {orders}"
    engine.create_materialized_view(view, inner)
    more = f"SELECT id, b, try_add(b, CAST(120 AS TINYINT)) AS c FROM ({inner})"
    engine.create_materialized_view(view, more)
    assert engine.verify(view) == []
    report = engine.create_materialized_view(
        view, f"SELECT id, b, c, hex(b) AS h FROM ({more}) WHERE c IS NULL"
    )
    assert report.definition in (COMPATIBLE, SHADOW)
    assert engine.verify(view) == []


def test_readers_of_a_redefined_view_and_its_changelog_follow(spark, engine, schema, orders):
    view, reader = f"lake.{schema}.v", f"lake.{schema}.r"
    query = GROUPS.format(o=orders)
    engine.create_materialized_view(view, query, changelog=True)
    engine.create_materialized_view(reader, f"SELECT k, s FROM {view} WHERE n > 1")
    start = engine.store.last_committed()
    _move(spark, orders, 10)
    engine.begin()
    report = engine.create_materialized_view(view, f"{query} HAVING n > 1", changelog=True)
    engine.advance()
    engine.publish()
    assert report.definition == COMPATIBLE
    assert _wrong(engine, schema, ("v", "r")) == {}
    rows = engine.changelog(view, start).collect()
    assert {row["k"] for row in rows if row["_op"] == "-"} >= {"z"}
    _move(spark, orders, 20)
    engine.advance()
    assert _wrong(engine, schema, ("v", "r")) == {}


def test_a_view_that_others_wrote_to_is_computed_from_the_sources(spark, engine, schema, orders):
    view, query = f"lake.{schema}.v", GROUPS.format(o=orders)
    engine.create_materialized_view(view, query)
    spark.sql(f"DELETE FROM {view} WHERE k = 'x'")
    report = engine.create_materialized_view(view, f"{query} HAVING n > 1")
    assert (report.definition, report.mode) == (SHADOW, "full")
    assert report.reason == "the view's table was modified outside dbt-streamsql"
    assert engine.verify(view) == []


def test_a_view_whose_version_somebody_expired_says_so_until_the_next_run(
    spark, engine, schema, orders
):
    view = f"lake.{schema}.v"
    engine.create_materialized_view(view, GROUPS.format(o=orders))
    spark.sql(f"INSERT INTO {view} SELECT * FROM {view}")
    spark.sql(
        "CALL lake.system.expire_snapshots("
        f"table => '{schema}.v', older_than => now(), retain_last => 1)"
    )
    with pytest.raises(StreamSqlError) as refused:
        engine.verify(view)
    assert refused.value.code == "CONSISTENCY_UNAVAILABLE"
    assert f"of {view}" in refused.value.given
    report = engine.advance().tables[view]
    assert (report.mode, report.reason) == (
        "full",
        "the view's table was modified outside dbt-streamsql",
    )
    assert engine.verify(view) == []


def test_an_input_that_is_another_table_now_is_read(spark, engine, schema, orders):
    view, query = f"lake.{schema}.v", GROUPS.format(o=orders)
    engine.create_materialized_view(view, query)
    spark.sql(f"ALTER TABLE {orders} ADD COLUMN more STRING")
    report = engine.create_materialized_view(view, f"{query} HAVING n > 1")
    assert (report.definition, report.mode) == (SHADOW, "full")
    assert report.reason == "an input of the view was redefined"
    assert engine.verify(view) == []


def test_a_full_refresh_that_is_asked_for_is_one(engine, schema, orders):
    view, query = f"lake.{schema}.v", GROUPS.format(o=orders)
    engine.create_materialized_view(view, query)
    report = engine.create_materialized_view(view, f"{query} HAVING n > 1", full_refresh=True)
    assert (report.definition, report.reason) == (SHADOW, "full refresh requested")


def test_another_refresh_mode_alone_computes_nothing(engine, schema, orders):
    view, query = f"lake.{schema}.v", GROUPS.format(o=orders)
    engine.create_materialized_view(view, query)
    report = engine.create_materialized_view(view, query, refresh_mode="incremental")
    assert (report.definition, report.mode) == (METADATA, "noop")
    report = engine.create_materialized_view(view, query, refresh_mode="full")
    assert (report.definition, report.mode) == (SHADOW, "full")


def test_the_definition_that_another_process_gave_counts(spark, engine, schema, orders):
    """What is stored is of the last definition, not of the one that this process knows."""
    view, query = f"lake.{schema}.v", GROUPS.format(o=orders)
    engine.create_materialized_view(view, query)
    other = Engine.open(spark=spark)
    other.create_materialized_view(view, f"{query} HAVING n > 1")
    other.close()
    report = engine.create_materialized_view(view, query)
    assert report.definition == SHADOW
    assert engine.verify(view) == []
