"""By which settings, and by which Spark, the same query gives other rows."""

from __future__ import annotations

import pytest

from dbt_streamsql.plan.definition.meaning import differing, meaning


@pytest.mark.parametrize(
    ("name", "was", "now"),
    [
        ("spark.sql.session.timeZone", "UTC", "Asia/Tokyo"),
        ("spark.sql.ansi.enabled", "true", "false"),
        ("spark.sql.caseSensitive", "false", "true"),
        ("spark.sql.storeAssignmentPolicy", "ANSI", "LEGACY"),
        ("spark.sql.legacy.timeParserPolicy", "CORRECTED", "LEGACY"),
    ],
)
def test_another_setting_that_queries_depend_on_is_told(name, was, now):
    before, after = meaning("4.1.2", {name: was}), meaning("4.1.2", {name: now})
    assert differing(before, after) == f"{name} was {was} and is now {now}"
    assert differing({}, {name: now}) == f"{name} was the default and is now {now}"
    assert differing(after, after) == ""


def test_another_spark_is_told_and_its_patches_are_not():
    assert differing(meaning("4.1.2", {}), meaning("4.2.0", {})) == "spark was 4.1 and is now 4.2"
    assert differing(meaning("4.1.2", {}), meaning("4.1.3", {})) == ""


def test_settings_that_change_no_row_are_left_out():
    settings = {"spark.sql.shuffle.partitions": "7", "spark.sql.adaptive.enabled": "false"}
    assert meaning("4.1.2", settings) == {"spark": "4.1"}
