"""Calls of streamsql_changelog in a text: found, written out, refused with their place."""

from __future__ import annotations

import pytest

from dbt_streamsql.compiler.parsing.changelog_function import (
    changelog_calls,
    refuse_calls,
    write_out,
)
from dbt_streamsql.errors import StreamSqlError


def test_a_call_has_two_to_four_constants():
    text = (
        "SELECT * FROM streamsql_changelog('a.b.c', 3) x\n"
        'JOIN Streamsql_Changelog ( "s.v" , 3 , 7 ) USING (id)\n'
        "JOIN streamsql_changelog(r'`l`.`s`.`v`', 0, 7 /* all */, 'upsert') USING (id)"
    )
    found = [(call.view, call.after, call.upto, call.mode) for call in changelog_calls(text)]
    assert found == [
        ("a.b.c", 3, None, "retract"),
        ("s.v", 3, 7, "retract"),
        ("`l`.`s`.`v`", 0, 7, "upsert"),
    ]
    assert [call.place.line for call in changelog_calls(text)] == [1, 2, 3]
    assert write_out(text, ["A", "B", "C"]) == (
        "SELECT * FROM (A) x\nJOIN (B) USING (id)\nJOIN (C) USING (id)"
    )


@pytest.mark.parametrize(
    "text",
    [
        "SELECT 'streamsql_changelog(1)'",
        "SELECT 1 -- streamsql_changelog(1)",
        "SELECT * FROM lake.s.streamsql_changelog",
        "SELECT lake.s.streamsql_changelog(1)",
        "SELECT `streamsql_changelog`('a', 1)",
    ],
)
def test_what_only_looks_like_a_call_is_left_alone(text):
    assert changelog_calls(text) == []
    assert write_out(text, []) == text


@pytest.mark.parametrize(
    "arguments",
    [
        *("", "'v'", "3, 'v'", "'v', '3'", "'v', 3, 'upsert'", "'v', -3", "'v', 1 + 2", "v, 3"),
        *("'v', 3,", "'v', 3, 4, 'upsert', 5", "'v', (SELECT 3)", "'v', 3.5", "'v', 3, NULL"),
    ],
)
def test_other_arguments_are_refused_with_their_place(arguments):
    with pytest.raises(StreamSqlError) as caught:
        changelog_calls(f"SELECT *\n  FROM streamsql_changelog({arguments})")
    assert caught.value.code == "FUNCTION_INVALID"
    assert (caught.value.place.line, caught.value.place.column) == (2, 8)
    assert caught.value.given.startswith("streamsql_changelog(")


def test_a_text_that_is_kept_may_have_no_call():
    refuse_calls("SELECT 1", "a view")
    with pytest.raises(StreamSqlError) as caught:
        refuse_calls("SELECT * FROM streamsql_changelog('v', 3)", "a view")
    assert caught.value.code == "FUNCTION_INVALID"
    assert caught.value.given == "streamsql_changelog('v', 3)"
