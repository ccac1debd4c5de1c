"""The only place where names and texts become SQL.

Values of queries travel as parameter markers. Spark 4.0, and Iceberg 1.11's parser, take none in a
table's properties, comments and locations, and in `CALL`: there, a value is a `literal`.

Names and texts are quoted whatever they contain. A config expression is the user's own SQL; it is
only kept from extending beyond its place in the statement.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from dbt_streamsql.errors import StreamSqlError

MAX_IDENTIFIER = 200
"""Longest table or schema name, in characters: names become parts of file names (255 bytes)."""

_PART = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_ .\-$]*[A-Za-z0-9_\-$])?")
_SPLIT = re.compile(r"`((?:[^`]|``)+)`|([^.`]+)")

# A column, or one of the functions that Iceberg partitions by.
_CALL = re.compile(
    r"\s*(bucket|date|date_hour|days?|hours?|months?|truncate|years?)\s*\(([^()]*)\)\s*",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"\s*\d{1,9}\s*")
_TOKEN = re.compile(
    r"""
    [rR](?:'[^']*'|"[^"]*")              # raw text: a backslash is only a backslash
    | '(?:[^'\\]|\\.)*' | "(?:[^"\\]|\\.)*" | `(?:[^`]|``)*`
    | \w+
    | (?P<wrong>--|/\*|['"`;]|\$\{)
    | .
    """,
    re.VERBOSE | re.DOTALL,
)
_PAIRS = {")": "(", "]": "[", "}": "{"}


def quote(identifier: str) -> str:
    """Back-tick one identifier: ``a`b`` -> ```a``b```. Any text is a valid column name."""
    return "`" + identifier.replace("`", "``") + "`"


def check_name(part: str, what: str = "table") -> str:
    """Return a schema or table name that every catalog and file system can store, or refuse it."""
    if len(part) > MAX_IDENTIFIER:
        raise StreamSqlError(
            "IDENTIFIER_INVALID",
            f"the {what} name is too long",
            given=f"{len(part)} characters: {part[:40]}…",
            allowed=f"at most {MAX_IDENTIFIER} characters",
            hint="choose a shorter model name or set a shorter `alias`",
        )
    if not _PART.fullmatch(part) or ".." in part:
        raise StreamSqlError(
            "IDENTIFIER_INVALID",
            f"the {what} name has an unsupported character",
            given=repr(part),
            allowed="letters, digits, `_`; inside also space, `.`, `-`, `$`",
            hint="rename the model or set an `alias`",
        )
    return part


def literal(value: object) -> str:
    """A text as a Spark SQL literal, where a statement takes no parameter markers."""
    text = str(value).lower() if isinstance(value, bool) else str(value)
    # Spark replaces `${…}` by settings and environment variables before it parses a statement.
    escaped = text.replace("\\", "\\\\").replace("'", "\\'").replace("${", "\\u0024{")
    return f"'{escaped}'"


def pairs(items: Mapping[str, str]) -> str:
    """`('key' = 'value', …)`, as a table's properties and options are written."""
    return f"({', '.join(f'{literal(key)} = {literal(value)}' for key, value in items.items())})"


def column(text: str) -> str:
    """A column named in a config, quoted; `a.b` is the field b of the column a."""
    parts, position = [], 0
    while match := _SPLIT.match(text, position):
        ticked, plain = match.groups()
        parts.append(ticked.replace("``", "`") if ticked is not None else plain.strip())
        position = match.end()
        if position == len(text):
            return ".".join(map(quote, parts)) if all(parts) else quote(text)
        if text[position] != ".":
            break
        position += 1
    return quote(text)


def partition_field(text: str) -> str:
    """A column, or a transform of one such as `days(ts)` or `bucket(16, id)`, quoted."""
    call = _CALL.fullmatch(text)
    if call is None:
        return column(text)
    arguments = [
        part.strip() if _NUMBER.fullmatch(part) else column(part.strip())
        for part in call[2].split(",")
    ]
    return f"{call[1].lower()}({', '.join(arguments)})"


def expression(text: object, what: str) -> str:
    """The text, if it is closed: no statement end, no comment, all quotes and brackets in pairs.

    `what` is the config key. Error: EXPRESSION_INVALID.
    """
    opened: list[str] = []
    problem = "" if isinstance(text, str) and text.strip() else "it is empty or not text"
    for match in () if problem else _TOKEN.finditer(str(text)):
        token = match.group(0)
        if match["wrong"]:
            problem = f"{token} at character {match.start() + 1}"
        elif token in _PAIRS.values():
            opened.append(token)
        elif token in _PAIRS and (not opened or opened.pop() != _PAIRS[token]):
            problem = f"unmatched {token} at character {match.start() + 1}"
        if problem:
            break
    if not problem and opened:
        problem = f"{opened[-1]} is never closed"
    if problem:
        raise StreamSqlError(
            "EXPRESSION_INVALID",
            f"`{what}` is not one SQL expression: {problem}",
            given=repr(text),
            allowed="an expression without `;`, comments or `${`, and with balanced quotes",
            hint="put backticks around a column with characters other than letters, digits and _",
        )
    return str(text)


@dataclass(frozen=True, order=True)
class TableName:
    """A three-part name: `str()` is what `parse` reads, the plain `catalog.schema.table` where
    that is unambiguous; `.sql` is the quoted text."""

    catalog: str
    schema: str
    table: str

    @classmethod
    def parse(cls, text: str, catalog: str = "", schema: str = "") -> TableName:
        """Read `a.b.c`, with or without back-ticks; missing parts come from the defaults."""
        parts, position = [], 0
        while position < len(text):
            match = _SPLIT.match(text, position)
            if match is None:
                break
            quoted, plain = match.groups()
            parts.append(quoted.replace("``", "`") if quoted is not None else plain)
            position = match.end()
            if position < len(text) and text[position] != ".":
                break
            position += 1
        full = [catalog, schema][: max(0, 3 - len(parts))] + parts
        if position <= len(text) or len(full) != 3 or not all(full):
            raise StreamSqlError(
                "IDENTIFIER_INVALID",
                "not a three-part table name",
                given=repr(text),
                allowed="catalog.schema.table",
            )
        return cls(full[0], full[1], full[2])

    def checked(self) -> TableName:
        """The same name after `check_name` of its schema and table."""
        check_name(self.schema, "schema")
        check_name(self.table, "table")
        return self

    @property
    def sql(self) -> str:
        return ".".join(quote(part) for part in (self.catalog, self.schema, self.table))

    def child(self, part: str) -> str:
        """Quoted text of a branch or a metadata table: `cat`.`s`.`t`.`snapshots`."""
        return f"{self.sql}.{quote(part)}"

    def __str__(self) -> str:
        parts = (self.catalog, self.schema, self.table)
        return ".".join(quote(part) if {".", "`"} & set(part) else part for part in parts)
