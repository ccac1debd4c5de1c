"""Calls of SQL functions, written out."""

from __future__ import annotations

import pytest

from dbt_streamsql.compiler.parsing.parse import statements
from dbt_streamsql.compiler.parsing.sql_functions import Function, Parameter, expand
from dbt_streamsql.errors import StreamSqlError

DOUBLE = Function("l.s.double", "scalar", (Parameter("x", "int"),), "int", "select x * 2 -- twice")
AREA = Function(
    "l.s.area",
    "scalar",
    (Parameter("a", "int"), Parameter("b", "int", "3")),
    "int",
    "a * b + l.s.double(a)",
)
KNOWN = {"l.s.double": DOUBLE, "l.s.area": AREA}


def expanded(sql):
    return expand(sql, lambda name: KNOWN.get(str(name)))


@pytest.mark.parametrize(
    ("call", "text"),
    [
        ("l.s.double(1)", "CAST((CAST((1) AS int) * 2) AS int)"),
        ("`l` . `s`.`double` ( f(a, ')') )", "CAST((CAST((f(a, ')')) AS int) * 2) AS int)"),
        ("l.s.double(1 -- one\n)", "CAST((CAST((1) AS int) * 2) AS int)"),
        (
            "l.s.double(l.s.double(x.y))",
            "CAST((CAST((CAST((CAST((x.y) AS int) * 2) AS int)) AS int) * 2) AS int)",
        ),
    ],
)
def test_a_call_stands_for_the_body_with_its_arguments(call, text):
    assert expanded(f"SELECT {call} + 1 FROM l.s.t") == f"SELECT {text} + 1 FROM l.s.t"


def test_a_default_stands_for_what_a_call_leaves_out_and_a_body_may_call_others():
    assert expanded("SELECT l.s.area(5)").startswith("SELECT CAST((CAST((5) AS int) * CAST((3) AS")
    assert expanded("SELECT l.s.area(5)").count("* 2") == 1


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 'l.s.double(1)', `l.s.double(1)` -- l.s.double(1)",
        "SELECT l.s.other(1), s.double(1), double(1)",
        "SELECT * FROM l.s.double WHERE x IN (1)",
    ],
)
def test_what_is_not_a_call_of_a_known_function_stays_letter_by_letter(sql):
    assert expanded(sql) == sql


def test_a_function_that_calls_itself_is_refused():
    known = {"l.s.f": Function("l.s.f", "scalar", (Parameter("x", "int"),), "int", "l.s.f(x)")}
    with pytest.raises(StreamSqlError) as caught:
        expand("SELECT l.s.f(1)", lambda name: known.get(str(name)))
    assert caught.value.code == "CYCLE"


def test_a_volatile_argument_may_be_used_once_only():
    assert "rand()" in expanded("SELECT l.s.double(rand())")
    with pytest.raises(StreamSqlError) as caught:
        expanded("SELECT l.s.area(rand(), 1)")
    assert caught.value.code == "FUNCTION_INVALID"


@pytest.mark.parametrize("kind", ["int) AS x, (SELECT 1", "int; drop table t", ""])
def test_a_type_that_is_no_type_is_refused(kind):
    with pytest.raises(StreamSqlError) as caught:
        Function("l.s.f", "scalar", (Parameter("x", kind),), "int", "x").checked()
    assert caught.value.code == "FUNCTION_INVALID"


def test_a_text_is_cut_at_its_semicolons_only():
    text = "set a = ';';\n-- b;c\nselect `d;e` ; /* ; */"
    assert statements(text) == ["set a = ';'", "select `d;e`"]
    assert statements(" ") == []
