"""The suite speaks PostgreSQL; every adapter translates. Ours does so in one place."""

from __future__ import annotations

import re

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

_DATE = re.compile(r"\d{4}-\d\d-\d\d( \d\d:\d\d:\d\d(?:\.\d+)?)?")
_SPELLINGS = (
    (re.compile(r"::text\b", re.IGNORECASE), "::string"),
    (re.compile(r"\bas text\b", re.IGNORECASE), "as string"),
    (re.compile(r"\b(data_type|type): ['\"]?text['\"]?", re.IGNORECASE), r"\1: string"),
    (re.compile(r"([(,] *\w+) text(?= *[,)])", re.IGNORECASE), r"\1 string"),
    (re.compile(r"::double precision", re.IGNORECASE), "::double"),
    (re.compile(r"::(?:character varying|varchar)(?:\(\d+\))?", re.IGNORECASE), "::string"),
    (re.compile(r"::timestamp without time zone", re.IGNORECASE), "::timestamp_ntz"),
    (re.compile(r"\b(?:timestamptz|timestamp with time zone)\b", re.IGNORECASE), "timestamp"),
    (re.compile(r'"varchar"(?=[,)])'), '"string"'),
    (re.compile(r"\bset session time zone\b", re.IGNORECASE), "set time zone"),
    (re.compile(r"\bcurrent_setting\('timezone'\)", re.IGNORECASE), "current_timezone()"),
    # What `vacuum` is for: let go of what no version needs.
    (
        re.compile(r"\bvacuum\s+(\{\{[^}]*\}\}[\w.]*)", re.IGNORECASE),
        r'call lake.system.expire_snapshots(table => "\1")',
    ),
)
_TRANSLATED = (".sql", ".yml")


def translate_file(text: str, name: str) -> str:
    """A file of a project in Spark's words; files that hold no SQL stay as they are."""
    if not name.endswith(_TRANSLATED):
        return text
    for pattern, replacement in _SPELLINGS:
        text = pattern.sub(replacement, text)
    return text


def translate_statements(sql: str) -> list[str]:
    """What a test sends by itself; what is not PostgreSQL's is Spark's already."""
    try:
        parsed = sqlglot.parse(sql.replace("`", '"'), read="postgres")
    except SqlglotError:
        return [sql]
    trees = [tree for tree in parsed if tree is not None]
    if any(isinstance(tree, exp.Command) for tree in trees):
        return [sql]
    return [one.sql("spark") for tree in trees for one in _filled(_dated(tree))]


def _dated(tree: exp.Expression) -> exp.Expression:
    """Texts that are dates as dates: PostgreSQL makes them so by itself."""
    if isinstance(tree, exp.Insert | exp.Update):
        for text in list(tree.find_all(exp.Literal)):
            if text.is_string and _DATE.fullmatch(text.this):
                kind = "timestamp" if _DATE.fullmatch(text.this)[1] else "date"
                text.replace(exp.cast(text.copy(), kind))
    return tree


def _filled(tree: exp.Expression) -> list[exp.Expression]:
    """A new column with a default as a new column that is then set: Iceberg knows no defaults."""
    defaults = list(tree.find_all(exp.DefaultColumnConstraint))
    if not isinstance(tree, exp.Alter) or not defaults:
        return [tree]
    statements = [tree]
    for default in defaults:
        column, value = default.find_ancestor(exp.ColumnDef), default.this
        default.parent.pop()
        if not isinstance(value, exp.Null):
            statements.append(exp.update(tree.this, {column.name: value}))
    return statements
