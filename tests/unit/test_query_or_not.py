"""Which statements of a dbt project are queries, so that they read what their run has made."""

from __future__ import annotations

import pytest

from dbt_streamsql.adapter.session.connections import is_query


@pytest.mark.parametrize(
    "text",
    [
        *("select 1", "-- a\n WITH q AS (SELECT 1) SELECT *", "from t |> where a", "(table t)"),
        *("VALUES (1)", "\ntable t |> set a = 1"),
    ],
)
def test_what_begins_as_a_query_is_one(text):
    assert is_query(text)


@pytest.mark.parametrize("text", ["truncate table t", "create table t as select 1", "tables"])
def test_what_begins_otherwise_is_none(text):
    assert not is_query(text)
