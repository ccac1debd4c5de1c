"""No macro prints a value between quotes that it writes itself, ours or those we inherit."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

_COMMENT = re.compile(r"\{#.*?#\}", re.DOTALL)
_MACRO = re.compile(
    r"\{%-?\s*(?:macro|test|materialization)\s+(\w+).*?"
    r"\{%-?\s*end(?:macro|test|materialization)\s*-?%\}",
    re.DOTALL,
)
_BLOCK = re.compile(r"\{%.*?%\}", re.DOTALL)
# A quote, then no other one, then a printed value: the value stands between quotes of the SQL.
_PRINTED = re.compile(r"""(['"`])[^'"`\n{}]*\{\{.*?\}\}""")
# The same done by hand in an expression: `"…'" ~ value`, or a replaced quote.
_JOINED = re.compile(r"""['`]["']\s*~|replace\(\s*["']\\?['"]""")
_JINJA = re.compile(r"\{[{%].*?[}%]\}", re.DOTALL)

OURS = Path(__file__).parents[2] / "macros"

INHERITED = {
    "dbt_spark_get_incremental_sql": "prints into a message of an error",
    "py_write_table": "python models are run by the adapter, not from this text",
    "spark__date": "the date is made by Python's datetime",
    "spark__snapshot_string_as_time": "the time is dbt's own",
}
"""Macros of dbt-spark that may print between quotes, and why no value of a config gets there."""


def _macros(folder: Path) -> dict[str, str]:
    found = {}
    for file in sorted(folder.rglob("*.sql")):
        for match in _MACRO.finditer(_COMMENT.sub("", file.read_text(encoding="utf-8"))):
            found[match[1]] = match[0]
    return found


def _between_quotes(text: str) -> list[str]:
    printed = [match[0] for match in _PRINTED.finditer(_BLOCK.sub("", text))]
    joined = [m[0] for part in _JINJA.findall(text) for m in _JOINED.finditer(part)]
    return printed + joined


def _of_spark() -> dict[str, str]:
    from dbt.include import spark

    return _macros(Path(next(iter(spark.__path__))) / "macros")


@pytest.mark.parametrize(("name", "text"), _macros(OURS).items())
def test_no_macro_of_ours_prints_between_quotes(name, text):
    assert _between_quotes(text) == []


def test_the_scan_finds_what_it_is_for():
    inherited = _of_spark()
    for name in ("spark__tblproperties_clause", "spark__location_clause", "spark__comment_clause"):
        assert _between_quotes(inherited[name]), name


def test_every_inherited_macro_that_prints_between_quotes_is_replaced():
    ours = _macros(OURS)
    open_ones = {
        name
        for name, text in _of_spark().items()
        if _between_quotes(text)
        and name not in ours
        and name.replace("spark__", "streamsql__") not in ours
    }
    assert open_ones - set(INHERITED) == set()
    assert set(INHERITED) <= open_ones, "the list has a macro that is no longer there"
