"""The suite speaks PostgreSQL; every adapter translates. Ours does so in one place."""

from __future__ import annotations

import re
from pathlib import Path

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

_DATE = re.compile(r"\d{4}-\d\d-\d\d( \d\d:\d\d:\d\d(?:\.\d+)?)?")
_SPELLINGS = (
    (re.compile(r"::text\b", re.IGNORECASE), "::string"),
    (re.compile(r"\bas text\b", re.IGNORECASE), "as string"),
    (re.compile(r"\b(data_type|type): ['\"]?text['\"]?", re.IGNORECASE), r"\1: string"),
    (re.compile(r"::(?:character varying|varchar)(?:\(\d+\))?", re.IGNORECASE), "::string"),
    (re.compile(r"::timestamp without time zone", re.IGNORECASE), "::timestamp_ntz"),
    (re.compile(r"\b(?:timestamptz|timestamp with time zone)\b", re.IGNORECASE), "timestamp"),
)


def translate_project(root: Path) -> None:
    """Rewrite the type names of a written project."""
    for file in root.rglob("*"):
        if file.suffix in {".sql", ".yml"} and file.is_file():
            text = file.read_text(encoding="utf-8")
            for pattern, replacement in _SPELLINGS:
                text = pattern.sub(replacement, text)
            file.write_text(text, encoding="utf-8")


def translate_statements(sql: str) -> list[str]:
    """What a test sends by itself; a text with back-ticks is Spark's already."""
    if "`" in sql:
        return [sql]
    try:
        parsed = sqlglot.parse(sql, read="postgres")
    except SqlglotError:
        return [sql]
    return [_dated(tree).sql("spark") for tree in parsed if tree is not None]


def _dated(tree: exp.Expression) -> exp.Expression:
    """Texts that are dates as dates: PostgreSQL makes them so by itself."""
    if isinstance(tree, exp.Insert | exp.Update):
        for text in list(tree.find_all(exp.Literal)):
            if text.is_string and _DATE.fullmatch(text.this):
                kind = "timestamp" if _DATE.fullmatch(text.this)[1] else "date"
                text.replace(exp.cast(text.copy(), kind))
    return tree
