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
    assert told.reason == f"{ZONE} was America/New_York and is Asia/Tokyo"
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
