"""One field of a row in a Debezium envelope, as the SQL text of its value.

Inputs and outputs are SQL expressions.
"""

from __future__ import annotations

import base64
import hashlib
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dbt_streamsql.connectors.sources.records import connect, json_text
from dbt_streamsql.connectors.sources.records.sql import (
    concat,
    field,
    one_of,
    when,
)
from dbt_streamsql.connectors.sources.records.values import as_texts, is_nested
from dbt_streamsql.plan.algebra.schema import HIDDEN_PREFIX
from dbt_streamsql.quoting import literal
from dbt_streamsql.storage.columns import type_text

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

PRECISE = "precise"
_SHORT = (
    *("boolean", "tinyint", "smallint", "int", "bigint", "float", "double"),
    *("date", "timestamp", "timestamp_ntz"),
)
"""Types whose values are never long enough to be left out."""
_UNSENT = (
    ": the update did not change it, and Debezium does not know its value; "
    "ALTER TABLE … REPLICA IDENTITY FULL makes PostgreSQL send it"
)


@dataclass(frozen=True)
class Unavailable:
    """The placeholder for a value that a change left as it was and did not send again."""

    word: str

    def says(self, given: str, kind: DataType) -> str:
        """Whether a value of texts is the placeholder. Never NULL."""
        from pyspark.sql.types import ArrayType, MapType

        raw, found = self.word.encode(), "false"
        if isinstance(kind, ArrayType) and not is_nested(kind.elementType):
            # For numbers it is the bytes of the word, for UUIDs its hash.
            hashed = uuid.UUID(bytes=hashlib.md5(raw, usedforsecurity=False).digest(), version=3)
            alone = one_of(f"get({given}, 0)", [*self._forms(), str(hashed)])
            codes = ", ".join(literal(each) for each in raw)
            found = f"size({given}) = 1 AND {alone} OR {given} = array({codes})"
        elif isinstance(kind, MapType):
            found = f"map_keys({given}) = array({literal(self.word)})"
        elif not is_nested(kind):
            found = one_of(given, self._forms())
        return f"coalesce({found}, false)"

    def _forms(self) -> list[str]:
        raw = self.word.encode()
        safe = base64.urlsafe_b64encode(raw).decode()
        as_json = f'{{"{self.word}":"{self.word}"}}'
        return [self.word, base64.b64encode(raw).decode(), safe, raw.hex(), as_json]


@dataclass(frozen=True)
class Cell:
    """The field of one column, in three steps: the result of each is a column for the next, which
    uses it several times. `number` distinguishes the columns of cells."""

    number: int
    name: str
    kind: DataType
    unavailable: Unavailable
    decimals: str | None

    def parsed(self, last: str, before: str, mark: str) -> dict[str, str]:
        """From the parsed rows."""
        shape = as_texts_of(self.kind)
        new, old = field(last, self.name), field(before, self.name)

        def is_number(given: str) -> str:
            return json_text.is_number(given, mark) if self._is_leaf else "false"

        found = {
            self._named("new"): json_text.plain_texts(new, shape, mark),
            self._named("new_number"): is_number(new),
        }
        if not self.is_always_sent:
            found[self._named("old")] = json_text.plain_texts(old, shape, mark)
            found[self._named("old_number")] = is_number(old)
        return found

    def sent(self, operation: str, fields: str) -> dict[str, str]:
        """The value of the row, or the previous one when it was left as it was."""
        new, is_number = self._named("new"), self._named("new_number")
        own = f"get(filter({fields}, x -> x.field = {literal(self.name)}), 0)"
        found = {self._named("field"): own}
        if self.is_always_sent:
            return {**found, self._named("value"): new, self._named("number"): is_number}
        old, unsent = self._named("old"), self.unavailable.says(new, self.kind)
        # The previous row may be only its key; but no value that is not sent is NULL.
        is_known = f"({old} IS NOT NULL AND NOT {self.unavailable.says(old, self.kind)})"
        is_lost = f"{unsent} AND NOT {is_known} AND {operation} <> 'd'"
        return {
            **found,
            self._named("value"): f"if({unsent}, {when(is_known, old)}, {new})",
            self._named("number"): f"if({unsent}, {self._named('old_number')}, {is_number})",
            self.unsent: when(is_lost, literal(f"column {self.name}{_UNSENT}")),
        }

    def stated(self) -> dict[str, str]:
        """The SQL text (texts, for a nested type) by the schema of the field; for a decimal
        without one, the value it has as bytes."""
        value, kind = self._named("value"), type_text(self.kind)
        if not self._is_leaf:
            return {self._named("text"): value}
        text = connect.text(value, self._named("field"), self._named("number"), kind)
        if not self._may_be_bytes:
            return {self._named("text"): text}
        scale = kind.partition(",")[2].rstrip(")")
        number = connect.decimal_text(value, scale)
        return {self._named("text"): text, self._named("bytes"): number}

    def text(self, fields: str) -> tuple[str, list[str]]:
        """The SQL text, and what is wrong with it. `fields`: the schemas of the row's fields."""
        value, text = self._named("value"), self._named("text")
        kind = type_text(self.kind)
        if not self._is_leaf:
            return text, []
        told = concat(literal(f"column {self.name}: "), value)
        why = concat(told, "' is not '", field(self._named("field"), "name"))
        problems = [when(f"{value} IS NOT NULL AND {text} IS NULL", why)]
        if not kind.startswith("decimal"):
            return text, problems
        is_silent = f"{fields} IS NULL AND NOT {self._named('number')} AND {value} IS NOT NULL"
        if self._may_be_bytes:
            number = self._named("bytes")
            why = concat(told, literal(f" is not {connect.DECIMAL}"))
            bad = when(f"{is_silent} AND {number} IS NULL", why)
            return f"if({is_silent}, {number}, {text})", [*problems, bad]
        if self.decimals is None:
            is_base64 = f"{value} RLIKE '^[A-Za-z0-9+/]+={{0,2}}$' AND length({value}) % 4 = 0"
            why = "' may be a number or its bytes in base64: `decimal_handling` says which'"
            problems.append(when(f"{is_silent} AND {is_base64}", concat(told, why)))
        return text, problems

    @property
    def _may_be_bytes(self) -> bool:
        """Whether the value is bytes where no schema describes it."""
        return self.decimals == PRECISE and type_text(self.kind).startswith("decimal")

    @property
    def _is_leaf(self) -> bool:
        return not is_nested(self.kind) and type_text(self.kind) != "variant"

    @property
    def is_always_sent(self) -> bool:
        return type_text(self.kind) in _SHORT

    @property
    def unsent(self) -> str:
        """A column of `sent`: the message for a value that was not sent and that the previous row
        lacks; else NULL. For cells that are not always sent."""
        return self._named("unsent")

    def _named(self, what: str) -> str:
        return f"{HIDDEN_PREFIX}{what}_{self.number}"


def as_texts_of(kind: DataType) -> DataType:
    """`as_texts` of one type."""
    from pyspark.sql.types import StructField, StructType

    return as_texts(StructType([StructField("one", kind)]))["one"].dataType
