"""Columns, texts and expressions of configs as SQL."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.quoting import TableName, column, expression, literal, partition_field, quote

_NAMES = re.compile(r"`(?:[^`]|``)*`(?:\.`(?:[^`]|``)*`)*", re.DOTALL)


@pytest.mark.parametrize(
    ("text", "sql"),
    [
        ("id", "`id`"),
        ("`a.b`", "`a.b`"),
        ("a.b", "`a`.`b`"),
        ("`a`.`b c`", "`a`.`b c`"),
        ("a`b", "`a``b`"),
        ("`a``b`", "`a``b`"),
        ("a) x; --", "`a) x; --`"),
        ("a..b", "`a..b`"),
        ("", "``"),
    ],
)
def test_a_column_of_a_config_is_a_name(text, sql):
    assert column(text) == sql


@given(st.text(alphabet="`.a ;'\\\n"))
def test_any_text_is_only_names(text):
    assert _NAMES.fullmatch(column(text))
    assert quote(text)[1:-1].replace("``", "") == text.replace("`", "")


@pytest.mark.parametrize(
    ("text", "sql"),
    [
        ("days(at)", "days(`at`)"),
        ("Bucket( 16 , `a b` )", "bucket(16, `a b`)"),
        ("truncate(4, s.name)", "truncate(4, `s`.`name`)"),
        ("drop(x)", "`drop(x)`"),
        ("days(at)) x", "`days(at)) x`"),
        ("days(a', b)", "days(`a'`, `b`)"),
    ],
)
def test_a_partition_is_a_column_or_a_transform_of_one(text, sql):
    assert partition_field(text) == sql


@pytest.mark.parametrize(
    "text",
    ["id", "id || '-' || `a;b`", "concat(a, ')')", r"r'\'", "a[1] > 2", "'--'", '"/*"', "x -> x"],
)
def test_a_closed_expression_stays_as_it_is(text):
    assert expression(text, "unique_key") == text


@pytest.mark.parametrize(
    "text",
    [
        *("a; drop table b", "a -- b", "a /* b */", "a)", "(a", "a]", "([)]", "'a", "a'", "`a"),
        *(r"r'\' ; b '", r"'\\' ; b '", "a ${env:HOME}", "", " ", None, 7),
    ],
    ids=repr,
)
def test_what_leaves_its_place_is_no_expression(text):
    with pytest.raises(StreamSqlError) as refused:
        expression(text, "unique_key")
    assert refused.value.code == "EXPRESSION_INVALID"
    assert "`unique_key`" in refused.value.message


def test_a_literal_keeps_spark_from_replacing_variables():
    assert literal("$" + "{env:HOME}") == r"'\u0024{env:HOME}'"
    assert literal(True) == "'true'"


@pytest.mark.parametrize(
    "parts", [("a", "b", "c"), ("a", "b.c", "d"), ("a", "b", "v1.2"), ("a", "b", "`c.`")]
)
def test_a_name_as_text_is_read_as_the_same_name(parts):
    name = TableName(*parts)
    assert TableName.parse(str(name)) == name
