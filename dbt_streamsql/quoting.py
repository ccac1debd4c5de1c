"""The one place where names become SQL text. Values never do: they travel as parameter markers."""

from __future__ import annotations

import re
from dataclasses import dataclass

from dbt_streamsql.errors import StreamSqlError

MAX_IDENTIFIER = 200
"""Longest table or schema name, in characters: names become parts of file names (255 bytes)."""

_PART = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_ .\-$]*[A-Za-z0-9_\-$])?")
_SPLIT = re.compile(r"`((?:[^`]|``)+)`|([^.`]+)")


def quote(identifier: str) -> str:
    """Back-tick one identifier: ``a`b`` -> ```a``b```. For columns any text is a name."""
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
            f"the {what} name has a character that cannot be stored",
            given=repr(part),
            allowed="letters, digits, `_`; inside also space, `.`, `-`, `$`",
            hint="rename the model or set an `alias`",
        )
    return part


@dataclass(frozen=True, order=True)
class TableName:
    """A three-part name: `str()` is the plain `catalog.schema.table`, `.sql` the quoted text."""

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
        return f"{self.catalog}.{self.schema}.{self.table}"
