from __future__ import annotations

import random

import pytest

from dbt_streamsql.connectors.sources.kafka.kafka_source import _bounded, _first
from dbt_streamsql.connectors.sources.registry import open_source
from dbt_streamsql.errors import Place, StreamSqlError
from tests.support.seeds import for_many_seeds

A0, A1 = ("a", 0), ("a", 1)


@for_many_seeds
def test_a_bound_is_kept_and_used_up(seed):
    rng = random.Random(seed)
    begins = {("t", number): rng.randrange(100) for number in range(rng.randrange(1, 6))}
    latest = {at: begin + rng.choice([0, 1, 5, 1000]) for at, begin in begins.items()}
    most = rng.randrange(1, 50)
    ends = _bounded(begins, latest, most)
    taken = sum(ends[at] - begins[at] for at in ends)
    assert taken == min(most, sum(latest[at] - begins[at] for at in latest))
    assert all(begins[at] <= ends[at] <= latest[at] for at in ends)


def position(offsets, start, topic_id="x"):
    return {"offsets": {"a": offsets}, "start": {"a": start}, "ids": {"a": topic_id}}


def test_reading_goes_on_where_it_ended_unless_it_began_anew():
    before = position({"0": 5}, {"0": 2})
    assert _first(A0, 9, before, position({"0": 9}, {"0": 2})) == 5
    assert _first(A0, 9, None, position({"0": 9}, {"0": 2})) == 2
    assert _first(A1, 9, before, position({"0": 5, "1": 9}, {"0": 2, "1": 3})) == 3
    # Records were passed over, or the topic is another one, with more or fewer records.
    assert _first(A0, 9, before, position({"0": 9}, {"0": 7})) == 7
    assert _first(A0, 9, before, position({"0": 9}, {"0": 2}, "y")) == 2
    assert _first(A0, 3, before, position({"0": 3}, {"0": 2})) == 2


def test_a_secret_of_a_login_is_not_told():
    login = 'PlainLoginModule required username="u" password="very-secret";'
    options = {"topic": "t", "kafka.sasl.jaas.config": login, "start": f"x {login}"}
    with pytest.raises(StreamSqlError) as caught:
        open_source({"connector": "kafka", "options": options}, Place("m"))
    assert "`bootstrap_servers` is missing" in str(caught.value)
    assert "very-secret" not in str(caught.value)
