"""The hint STATE_TTL is read from a query, and taken out of it for Spark."""

from __future__ import annotations

import pytest

from dbt_streamsql import StreamSqlError
from dbt_streamsql.compiler.parsing.ttl_hints import ttl_hints, without_ttl_hints


@pytest.mark.parametrize(
    ("hint", "left"),
    [
        ("/*+ STATE_TTL('o' = '3d', 's'='1d') */", ""),
        ("/*+ state_ttl('o'='3d','s'='1d'), BROADCAST(s) */", "/*+ BROADCAST(s) */"),
        ("/*+ BROADCAST(s), STATE_TTL('o'='3d','s'='1d') */", "/*+ BROADCAST(s) */"),
        (
            "/*+ BROADCAST(s), STATE_TTL('o'='3d','s'='1d'), MERGE(o) */",
            "/*+ BROADCAST(s) , MERGE(o) */",
        ),
    ],
)
def test_a_hint_goes_and_the_others_stay(hint, left):
    query = "SELECT {} 1 / 2 FROM o JOIN s ON o.k = s.k"
    assert ttl_hints(query.format(hint)) == {"o": "3d", "s": "1d"}
    told = without_ttl_hints(query.format(hint))
    assert told.split() == query.format(left).split()
    assert len(told) == len(query.format(hint))


def test_a_text_without_the_hint_is_left_as_it_is():
    query = "SELECT /*+ BROADCAST(s) */ 'state_ttl(' FROM o"
    assert not ttl_hints(query)
    assert without_ttl_hints(query) == query


@pytest.mark.parametrize("inside", ["o = '3d'", "'o'", "'o' = 3", "'o' = '3d' 's' = '1d'"])
def test_a_hint_that_cannot_be_read_is_refused(inside):
    with pytest.raises(StreamSqlError, match="STATE_TTL cannot be read"):
        ttl_hints(f"SELECT /*+ STATE_TTL({inside}) */ 1")
