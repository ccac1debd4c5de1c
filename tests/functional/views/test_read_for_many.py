"""A version of an input over which many views compute their queries is read once for all of them."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.spark

VIEWS = 8
QUERIES = (
    "SELECT g, count(*) AS n, sum(v) AS total FROM {s}.facts WHERE v <> {n} GROUP BY g",
    "SELECT f.k, f.v + {n} AS v, d.t FROM {s}.facts f JOIN {s}.names d ON f.g = d.k",
)


@pytest.fixture
def views(engine, schema, tune):
    """Views of which every one is compared with its query, by one thread after the other."""
    tune(engine, compared_rows=1_000_000, comparing=0.0, parallel=1)
    s = f"lake.{schema}"
    for name, text in (
        ("facts", "SELECT id AS k, id % 7 AS g, nullif(id % 11, 3) AS v FROM range(500)"),
        ("names", "SELECT id AS k, concat('n', id) AS t FROM range(7)"),
    ):
        engine.spark.sql(
            f"CREATE TABLE {s}.{name} TBLPROPERTIES ('format-version' = '3') AS {text}"
        )
    made = {f"{s}.v{n}": QUERIES[n % len(QUERIES)].format(s=s, n=n) for n in range(VIEWS)}
    for name, query in made.items():
        engine.create_materialized_view(name, query)
    return made


def change(engine, schema, number):
    s = f"lake.{schema}"
    engine.spark.sql(f"UPDATE {s}.facts SET v = v + 1 WHERE k % 50 = {number}")
    engine.spark.sql(f"DELETE FROM {s}.facts WHERE k = {100 + number}")
    engine.spark.sql(f"UPDATE {s}.names SET t = concat(t, '!') WHERE k = {number}")


def last_plans(spark):
    """The plans of the queries that Spark has run last: in tests it remembers five."""
    found = spark._jsparkSession.sharedState().statusStore().executionsList()
    return [found.apply(at).physicalPlanDescription() for at in range(found.size())]


@pytest.mark.parametrize("alone", [2, VIEWS])
def test_files_are_read_for_the_first_views_and_not_for_the_others(
    engine, schema, views, tune, alone
):
    tune(engine, compared_rows=1_000_000, comparing=0.0, parallel=1, read_alone=alone)
    for number in range(3):
        change(engine, schema, number)
        report = engine.advance().tables
        assert {report[name].strategy for name in views} == {"compare"}
        plans = [plan for plan in last_plans(engine.spark) if f"{schema}.facts" in plan]
        kept = {"InMemoryRelation" in plan for plan in plans}
        assert kept == {alone < VIEWS}
        for name in views:
            assert engine.verify(name) == []


def test_each_epoch_reads_its_own_version_and_leaves_nothing_behind(engine, schema, views):
    spark = engine.spark
    for number in range(2):
        change(engine, schema, number)
        engine.advance()
    spark.sql(f"DELETE FROM lake.{schema}.facts")
    report = engine.advance().tables
    for name, query in views.items():
        assert spark.table(name).count() == spark.sql(query).count()
    assert {report[name].mode for name in views} == {"incremental"}
    session = spark._jsparkSession
    names = session.sessionState().catalog().globalTempViewManager().listViewNames("streamsql_*")
    assert names.isEmpty()
    assert session.sharedState().cacheManager().isEmpty()
