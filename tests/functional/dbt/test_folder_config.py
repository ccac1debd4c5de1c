"""Keys of one kind of model on a folder that holds several kinds."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.spark

FOLDER = """
    name: shop
    version: '1.0'
    profile: shop
    models:
      shop:
        +refresh_mode: full
        +partition_by: {field: at, data_type: timestamp, granularity: day}
        +file_format: iceberg
        +changelog: false
        +on_error: quarantine
        +lateness: 2 hours
        kept:
          +refresh_mode: incremental
    seeds:
      +state_ttl: 3 days
    """
KINDS = ("table", "view", "incremental")


@pytest.fixture
def shop(project):
    project.write("dbt_project.yml", FOLDER)
    project.write("seeds/orders.csv", "id,amount\n1,10\n2,7\n")
    project.write(
        "models/kept/totals.sql",
        "{{ config(materialized='materialized_view') }} "
        "select id, sum(amount) as amount from {{ ref('orders') }} group by id",
    )
    return project


def test_models_of_other_kinds_ignore_what_their_folder_says_to_some(shop):
    for kind in KINDS:
        shop.write(
            f"models/kept/{kind}.sql",
            f"{{{{ config(materialized='{kind}') }}}} "
            "select *, timestamp'2026-01-02 03:04:05' as at from {{ ref('totals') }}",
        )
    done = shop.dbt("build")
    assert done.ok, done.messages
    assert (
        shop.host.engine.adapter_api.configuration("lake.shop.totals")["refresh_mode"]
        == "incremental"
    )
    assert shop.dbt("run").messages["totals"] == "NOOP"
    days = shop.sql("select partition.at_day from lake.shop.table.partitions")
    assert [str(day) for (day,) in days] == ["2026-01-02"]
    assert "partition" not in str(shop.sql("describe lake.shop.totals")).lower()
    assert shop.dbt("compile").ok
    assert (shop.root / "target" / "plans" / "totals.json").exists()


@pytest.mark.parametrize("place", ["config", "yaml"])
@pytest.mark.parametrize(
    ("kind", "key", "value"),
    [
        *((kind, "refresh_mode", "auto") for kind in ("table", "view")),
        ("materialized_view", "on_error", "fail"),
    ],
)
def test_what_a_model_says_itself_is_still_refused(shop, place, kind, key, value):
    said = f", {key}='{value}'" if place == "config" else ""
    shop.write(
        "models/kept/own.sql", f"{{{{ config(materialized='{kind}'{said}) }}}} select 1 as id"
    )
    if place == "yaml":
        shop.write("models/kept/own.yml", f"models: [{{name: own, config: {{{key}: {value}}}}}]\n")
    done = shop.dbt("run", "-s", "own")
    assert not done.ok
    assert f"`{key}`" in done.messages["own"]


LAYOUT = {
    "partition_by": "'id'",
    "clustered_by": "'id'",
    "buckets": "4",
    "unique_key": "'id'",
    "incremental_strategy": "'merge'",
    "file_format": "'delta'",
}


def test_what_a_maintained_model_cannot_take_of_plain_tables_is_refused_by_name(shop):
    said = ", ".join(f"{key}={value}" for key, value in LAYOUT.items())
    for kind in ("materialized_view", "streaming_table", "partial_update", "sink"):
        shop.write(
            f"models/kept/own_{kind}.sql",
            f"{{{{ config(materialized='{kind}', {said}) }}}} select 1 as id",
        )
    done = shop.dbt("run", "-s", "kept", "--exclude", "totals")
    for kind in ("materialized_view", "streaming_table", "partial_update", "sink"):
        for key in LAYOUT:
            assert f"`{key}" in done.messages[f"own_{kind}"], (kind, key)


@pytest.mark.parametrize(
    "said",
    ["{'field': 'id', 'data_type': 'int64', 'range': {'start': 0}}", "{'column': 'id'}", "7"],
)
def test_a_partitioning_that_cannot_be_understood_is_refused(shop, said):
    shop.write(
        "models/own.sql",
        f"{{{{ config(materialized='table', partition_by={said}) }}}} select 1 as id",
    )
    done = shop.dbt("run", "-s", "own")
    assert "invalid `partition_by`" in done.messages["own"]
    assert "days(ts)" in done.messages["own"]
