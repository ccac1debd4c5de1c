"""The definition that a job keeps is read as it was written."""

from __future__ import annotations

import json
from dataclasses import fields, replace

import pytest
from pydantic import TypeAdapter

from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.meta import Job, Sink
from dbt_streamsql.meta.model.stored_definition import (
    StoredDefinition,
    StoredSink,
    columns_of,
    definition_of,
    known_plan,
    named,
    plan_of,
    stored_sink,
    tree_of,
)
from dbt_streamsql.meta.store.sql.schema import from_job
from dbt_streamsql.plan.algebra.schema import Column
from dbt_streamsql.plan.compiled import PLAN_VERSION, CompiledPlan
from dbt_streamsql.plan.definition.table_key import TableKey
from dbt_streamsql.plan.definition.unsent import Carrying

PLAN = CompiledPlan(
    *("SELECT 1", "incremental", "fold", (), ("lake.s.t",)),
    *((Column("k", "int"),), (), ("k",), "", (), {"node": "Scan"}, "abc"),
)
STREAM = {"name": "s", "spec": {"connector": "datagen"}, "key": ["k"], "leave_out": []}
FULL = StoredDefinition(
    properties={"a": "b"},
    hidden=("_n",),
    changelog=True,
    state_ttl={"default": 5.0},
    state=(3, 5),
    keys=(TableKey("lake.s.t", "k"), TableKey("lake.s.u", "k", "lake.s.t", "k")),
    declined=("other",),
    part="0123456789abcdef",
    stream=STREAM,
    reads=(Column("k", "int"), Column("v", "string")),
    makes=(Column("k", "int"),),
    sequence="bigint",
    waits=(Column("k", "int"),),
    carries=Carrying("SELECT", {"v": ("v",)}, ("k",), ("k",), "no"),
    side_of="lake.s.other",
    stamps={"lake.s.t": "1"},
    compiler="c",
    meaning={"spark": "4"},
)


def stored(definition):
    """A job as a store returns it."""
    kept = json.loads(json.dumps([definition.as_config(), definition.as_plan(PLAN)]))
    return Job("lake.s.v", "", "SELECT 1", config=kept[0], plan=kept[1])


def test_every_option_is_read_as_it_was_written():
    assert all(getattr(FULL, each.name) for each in fields(FULL))
    assert definition_of(stored(FULL)) == FULL
    assert plan_of(stored(FULL)) == PLAN


def test_what_was_read_from_a_job_is_not_stored_with_it():
    job, asked = stored(FULL), stored(FULL)
    definition_of(asked), plan_of(asked)
    assert definition_of(asked) is definition_of(asked)
    assert asked == job
    assert from_job(asked) == from_job(job)
    sent, kept = (TypeAdapter(Job).dump_json(each) for each in (asked, job))
    assert sent == kept


def test_what_is_not_set_is_not_stored():
    plain = StoredDefinition(meaning={"spark": "4"})
    assert plain.as_config() == {"hidden": [], "properties": {}}
    assert definition_of(stored(plain)) == plain
    assert definition_of(Job("t", "", "")) == StoredDefinition()


def test_columns_are_read_as_they_were_written():
    columns = (Column("k", "int"), Column("v", "array<string>"))
    assert columns_of(named(columns)) == columns


@pytest.mark.parametrize("version", [PLAN_VERSION - 1, PLAN_VERSION + 1])
def test_of_a_plan_of_another_version_only_the_tree_is_read(version):
    job = stored(FULL)
    job = replace(job, plan={**job.plan, "plan": {**job.plan["plan"], "version": version}})
    assert known_plan(job) is None
    assert tree_of(job) == PLAN.tree
    with pytest.raises(StreamSqlError, match="PLAN_MISMATCH"):
        plan_of(job)


def test_a_job_without_a_plan_has_none():
    assert known_plan(Job("t", "", "")) is None


def test_the_options_of_a_sink_are_read_as_they_were_written():
    every = StoredSink({"connector": "kafka"}, "broker", ("k",), "append", {"k": "k"})
    plain = StoredSink({"connector": "files"})
    for options in (every, plain):
        kept = json.loads(json.dumps(options.as_config()))
        assert stored_sink(Sink("s", "t", "", "SELECT 1", kept)) == options
    assert "plain" not in plain.as_config()
