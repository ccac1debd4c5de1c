"""How old a table may be: what a model's config says, and who tells when it is older."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from prometheus_client.parser import text_string_to_metric_families

from dbt_streamsql.adapter.config import model_config
from dbt_streamsql.adapter.config.folder_config import own_config
from dbt_streamsql.adapter.config.sink import of_sink
from dbt_streamsql.cli import main
from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.meta import MetaStore, open_store
from dbt_streamsql.meta.inspect import history, overview
from dbt_streamsql.meta.model.freshness import Freshness, freshness_of
from dbt_streamsql.web.metrics import Exporter
from tests.support.histories import CLEAN, ORDERS, TOP, Clock, tell

HALF_AN_HOUR, TWO_HOURS = {"count": 30, "period": "minute"}, {"count": 2, "period": "hour"}
BOTH = {"warn_after": HALF_AN_HOUR, "error_after": TWO_HOURS}


@pytest.fixture
def clock() -> Clock:
    return Clock(10_000.0)


def of_config(config: dict) -> Freshness | None:
    return freshness_of(model_config.of_materialized_view("t", config)["properties"])


def test_a_model_says_it_in_the_words_of_dbt_or_under_meta() -> None:
    assert of_config({"freshness": BOTH}) == Freshness(1800.0, 7200.0)
    assert of_config({"meta": {"streamsql": {"freshness": BOTH}}}) == Freshness(1800.0, 7200.0)
    days = {"error_after": {"count": 1, "period": "day"}, "warn_after": None}
    assert of_config({"freshness": days}) == Freshness(error_after=86400.0)
    assert of_config({"freshness": {"build_after": {"count": 1, "period": "day"}}}) is None
    assert of_config({}) is None


def test_what_dbt_drops_of_a_models_config_counts() -> None:
    model = {
        "config": {"materialized": "materialized_view", "freshness": None},
        "unrendered_config": {"freshness": {"warn_after": HALF_AN_HOUR}},
        "resource_type": "test",
        "package_name": "shop",
        "fqn": ["shop", "m"],
    }

    class Project:
        dependencies = None

    assert of_config(own_config(model, Project())) == Freshness(1800.0)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (5, "must be like {warn_after: {count: 30, period: minute}"),
        ({"warn_after": "5 minutes"}, "`freshness: warn_after` must be like {count: 30"),
        ({"warn_after": {"count": 0, "period": "day"}}, "with a positive count"),
        ({"warn_after": {"count": True, "period": "day"}}, "with a positive count"),
        ({"error_after": {"count": 1, "period": "week"}}, "one of minute, hour, day"),
        ({"fail_after": HALF_AN_HOUR}, "unknown key `fail_after`"),
        ({"warn_after": TWO_HOURS, "error_after": HALF_AN_HOUR}, "must not be longer"),
    ],
)
def test_what_is_wrong_is_told_with_a_right_form(given: object, told: str) -> None:
    with pytest.raises(StreamSqlError) as refused:
        of_config({"freshness": given, "refresh_mode": "x"})
    assert refused.value.code == "CONFIG_INVALID"
    assert told in refused.value.given
    assert "`refresh_mode` must be" in refused.value.given, "all mistakes at once"


def test_a_sink_has_no_table_that_could_be_old(tmp_path: Path) -> None:
    config = {"target": {"connector": "files", "options": {}}, "freshness": BOTH}
    with pytest.raises(StreamSqlError, match="config has an error") as refused:
        of_sink("t", config, tmp_path)
    assert "a sink has no table" in refused.value.given


def test_a_table_exceeds_its_limits_as_its_newest_change_ages(
    store: MetaStore, clock: Clock
) -> None:
    story = tell(store, clock, 2)
    story.promise(TOP, Freshness(1800.0, 7200.0))
    found = history.load(store)
    changed = {node.table: node for node in overview.topology(found).nodes}[TOP].changed_at
    assert changed is not None
    stale = [
        overview.status(found, changed + age).stale for age in (1800.0, 1801.0, 7200.0, 7201.0)
    ]
    assert stale == [{}, {TOP: "warn"}, {TOP: "warn"}, {TOP: "error"}]


def test_a_table_that_has_long_not_changed_is_old_although_its_inputs_change(
    store: MetaStore, clock: Clock
) -> None:
    story = tell(store, clock, 2)
    story.promise(TOP, Freshness(error_after=600.0))
    changed = {n.table: n for n in overview.topology(history.load(store)).nodes}[TOP].changed_at
    for _ in range(history.NEWEST + 5):
        story.change(ORDERS)
        story.barrier(noops=(TOP,))
    found = history.load(store)
    node = {node.table: node for node in overview.topology(found).nodes}[TOP]
    assert (node.state, node.changed_at) == ("current", changed)
    assert overview.status(found, clock.now).stale == {TOP: "error"}


def test_other_programs_may_write_nonsense_into_the_property() -> None:
    assert freshness_of({"streamsql.freshness.warn-after": "soon"}) is None


def test_prometheus_gets_each_limit(store: MetaStore, clock: Clock) -> None:
    story = tell(store, clock, 2)
    story.promise(TOP, Freshness(1800.0, 7200.0))
    story.promise(CLEAN, Freshness(error_after=60.0))
    families = text_string_to_metric_families(Exporter(store, clock).text().decode())
    told = {
        (sample.labels["table"], sample.labels["limit"]): sample.value
        for family in families
        for sample in family.samples
        if sample.name == "streamsql_table_freshness_limit_seconds"
    }
    assert told == {(TOP, "warn"): 1800.0, (TOP, "error"): 7200.0, (CLEAN, "error"): 60.0}


def test_the_status_of_a_stale_table_can_fail_a_script(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path}/streamsql.db", clock=Clock(10_000.0))
    clock = Clock(10_000.0)
    story = tell(store, clock, 2)
    story.promise(TOP, Freshness(warn_after=60.0))
    command = ["status", "--warehouse", str(tmp_path), "--check"]
    told = CliRunner().invoke(main, command)
    assert told.exit_code == 0, "a warning fails nothing"
    assert f"{TOP} is too old: its newest change exceeds `warn_after`" in told.output
    story.promise(TOP, Freshness(error_after=60.0))
    store.close()
    assert CliRunner().invoke(main, command).exit_code == 1
    assert CliRunner().invoke(main, [*command, "--json"]).exit_code == 1
    assert CliRunner().invoke(main, command[:-1]).exit_code == 0
