"""A view goes on by the settings that its rows were made by, or it is computed anew."""

from __future__ import annotations

import pytest

from dbt_streamsql import Engine
from dbt_streamsql.storage.conf import settings_of

pytestmark = pytest.mark.spark

ZONE = "spark.sql.session.timeZone"
BY_HOUR = "SELECT to_date(at) AS d, hour(at) AS h, count(*) AS n FROM {t} GROUP BY 1, 2"


@pytest.fixture
def under(spark):
    """An engine in a session with settings of its own."""
    opened = []

    def made(**settings):
        session = spark.newSession()
        for name, value in {**settings_of(spark), **settings}.items():
            if session.conf.isModifiable(name):
                session.conf.set(name, value)
        opened.append(Engine.open(spark=session))
        return opened[-1]

    yield made
    for engine in opened:
        engine.close()


def test_a_view_of_another_time_zone_is_computed_anew_and_says_why(spark, schema, under):
    table, view = f"lake.{schema}.visits", f"lake.{schema}.by_hour"
    spark.sql(f"CREATE TABLE {table} AS SELECT TIMESTAMP'2026-01-01 03:00:00Z' AS at")
    at_home = under(**{ZONE: "America/New_York"})
    at_home.create_materialized_view(view, BY_HOUR.format(t=table))
    abroad = under(**{ZONE: "Asia/Tokyo"})
    spark.sql(f"INSERT INTO {table} VALUES (TIMESTAMP'2026-01-01 04:00:00Z')")
    told = abroad.advance().tables[view]
    assert (told.mode, told.definition) == ("full", "shadow rebuild")
    assert told.reason == f"{ZONE} was America/New_York and is now Asia/Tokyo"
    assert abroad.verify(view) == []
    # From then on it follows the changes again, also when nothing else is another one.
    spark.sql(f"INSERT INTO {table} VALUES (TIMESTAMP'2026-01-01 05:00:00Z')")
    assert abroad.advance().tables[view].mode == "append"
    back = under(**{ZONE: "America/New_York"})
    assert back.advance().tables[view].mode == "full"
    assert back.verify(view) == []
    assert [row.h for row in back.sql(f"SELECT h FROM {view} ORDER BY h").collect()] == [0, 22, 23]


def test_a_setting_that_changes_no_row_rebuilds_nothing(spark, schema, under):
    table, view = f"lake.{schema}.visits", f"lake.{schema}.by_hour"
    spark.sql(f"CREATE TABLE {table} AS SELECT TIMESTAMP'2026-01-01 03:00:00Z' AS at")
    under().create_materialized_view(view, BY_HOUR.format(t=table))
    other = under(**{"spark.sql.shuffle.partitions": "3"})
    assert other.advance().tables[view].mode == "noop"


def test_what_is_set_on_the_engines_session_holds_from_the_next_epoch_on(spark, schema, under):
    table, view = f"lake.{schema}.t", f"lake.{schema}.shares"
    spark.sql(f"CREATE TABLE {table} AS SELECT 1 AS id, 2 AS n")
    engine = under()
    engine.create_materialized_view(view, f"SELECT id, 6 / n AS share FROM {table}")
    spark.sql(f"INSERT INTO {table} VALUES (2, 0)")
    with pytest.raises(Exception, match="DIVIDE_BY_ZERO"):
        engine.advance()
    engine.spark.conf.set("spark.sql.ansi.enabled", "false")
    told = engine.advance().tables[view]
    assert (told.mode, told.definition) == ("full", "shadow rebuild")
    assert told.reason == "spark.sql.ansi.enabled was the default and is now false"
    assert engine.verify(view) == []
    spark.sql(f"INSERT INTO {table} VALUES (3, 0)")
    assert engine.advance().tables[view].mode == "append"
    assert [
        row.share for row in engine.sql(f"SELECT share FROM {view} ORDER BY id").collect()
    ] == [
        3.0,
        None,
        None,
    ]


def test_without_ansi_a_sum_that_did_not_fit_comes_back_from_null(spark, schema, under):
    table, view, nested = (f"lake.{schema}.{name}" for name in ("t", "sums", "nested"))
    spark.sql(f"CREATE TABLE {table} (id INT, k INT, d DECIMAL(38,0), b BIGINT)")
    most = f"CAST('{'9' * 38}' AS DECIMAL(38,0)), {2**63 - 1}"
    spark.sql(f"INSERT INTO {table} VALUES (1, 1, {most}), (2, 1, 1, 1)")
    engine = under(**{"spark.sql.ansi.enabled": "false"})
    sums = f"SELECT k, sum(d) AS s, avg(d) AS a, sum(b) AS b FROM {table} GROUP BY k"
    queries = {view: sums, nested: f"SELECT max(s) AS m, sum(b) AS b FROM ({sums}) WHERE k > 0"}
    for name, query in queries.items():
        engine.create_materialized_view(name, query, refresh_mode="incremental_strict")
    assert spark.sql(f"SELECT s FROM {view}").first().s is None
    for change in (
        f"DELETE FROM {table} WHERE id = 1",
        f"INSERT INTO {table} VALUES (3, 1, {most})",
        f"INSERT INTO {table} VALUES (4, 2, {most}), (5, 2, {most})",
        f"UPDATE {table} SET d = 0 WHERE id = 5",
    ):
        spark.sql(change)
        engine.advance()
        for name in queries:
            assert engine.verify(name) == [], (change, name)


def test_a_session_keeps_how_its_user_has_stages_planned(spark, schema, under):
    table, view = f"lake.{schema}.visits", f"lake.{schema}.few"
    spark.sql(f"CREATE TABLE {table} AS SELECT 1 AS k")
    engine = under(**{"spark.sql.adaptive.enabled": "false"})
    engine.create_materialized_view(view, f"SELECT k, count(*) AS n FROM {table} GROUP BY k")
    spark.sql(f"INSERT INTO {table} VALUES (1), (2)")
    assert engine.advance().tables[view].mode == "incremental"
    with engine.warehouse.sessions.use() as session:
        assert session.conf.get("spark.sql.adaptive.enabled") == "false"
