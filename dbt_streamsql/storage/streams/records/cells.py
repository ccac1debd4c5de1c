"""One field of a row in an envelope of Debezium's, as the text of SQL that it stands for."""

from __future__ import annotations

import base64
import hashlib
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dbt_streamsql.plan.schema import HIDDEN_PREFIX
from dbt_streamsql.storage.columns import type_text
from dbt_streamsql.storage.streams.records import connect, json_text
from dbt_streamsql.storage.streams.records.values import as_texts, is_nested

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType

PRECISE = "precise"
_SHORT = (
    *("boolean", "tinyint", "smallint", "int", "bigint", "float", "double"),
    *("date", "timestamp", "timestamp_ntz"),
)
"""Types whose values are never so long that one is not sent."""
_UNSENT = (
    ": it was left as it was, and Debezium does not know its value; "
    "ALTER TABLE … REPLICA IDENTITY FULL lets PostgreSQL send it"
)


@dataclass(frozen=True)
class Unavailable:
    """What stands for a value that a change has left as it was and that was not sent again."""

    word: str

    def says(self, given: Column, kind: DataType) -> Column:
        """Whether a value of texts is that. Never NULL."""
        from pyspark.sql import functions as F  # noqa: N812 - its usual name
        from pyspark.sql.types import ArrayType, MapType

        raw = self.word.encode()
        found = F.lit(False)
        if isinstance(kind, ArrayType) and not is_nested(kind.elementType):
            # Of numbers it is the bytes of the word, of UUIDs its hash.
            hashed = uuid.UUID(bytes=hashlib.md5(raw, usedforsecurity=False).digest(), version=3)
            alone = F.get(given, F.lit(0)).isin(*self._forms(), str(hashed))
            codes = F.array(*(F.lit(str(each)) for each in raw))
            found = ((F.size(given) == 1) & alone) | (given == codes)
        elif isinstance(kind, MapType):
            found = F.map_keys(given) == F.array(F.lit(self.word))
        elif not is_nested(kind):
            found = given.isin(*self._forms())
        return F.coalesce(found, F.lit(False))

    def _forms(self) -> list[str]:
        raw = self.word.encode()
        safe = base64.urlsafe_b64encode(raw).decode()
        as_json = f'{{"{self.word}":"{self.word}"}}'
        return [self.word, base64.b64encode(raw).decode(), safe, raw.hex(), as_json]


@dataclass(frozen=True)
class Cell:
    """The field of one column, in three steps: what one makes is a column for the next, since
    each uses it several times. `number` tells the columns of cells apart."""

    number: int
    name: str
    kind: DataType
    unavailable: Unavailable
    decimals: str | None

    def parsed(self, last: Column, before: Column, mark: Column) -> dict[str, Column]:
        """Out of the rows as they were parsed."""
        from pyspark.sql import functions as F  # noqa: N812 - its usual name

        shape = as_texts_of(self.kind)
        new, old = last.getField(self.name), before.getField(self.name)

        def is_number(given: Column) -> Column:
            return json_text.is_number(given, mark) if self._is_leaf else F.lit(False)

        found = {
            self._named("new"): json_text.plain_texts(new, shape, mark),
            self._named("new_number"): is_number(new),
        }
        if not self._is_always_sent:
            found[self._named("old")] = json_text.plain_texts(old, shape, mark)
            found[self._named("old_number")] = is_number(old)
        return found

    def sent(self, operation: Column, fields: Column) -> dict[str, Column]:
        """The value of the row, or the one before when it was left as it was."""
        from pyspark.sql import functions as F  # noqa: N812 - its usual name

        new = F.col(self._named("new"))
        own = F.filter(fields, lambda each: each.getField("field") == self.name)
        found = {self._named("field"): F.get(own, F.lit(0))}
        if self._is_always_sent:
            number, nothing = F.col(self._named("new_number")), F.lit(None).cast("string")
            value = {self._named("value"): new, self._named("number"): number}
            return {**found, **value, self._named("unsent"): nothing}
        old, unsent = F.col(self._named("old")), self.unavailable.says(new, self.kind)
        # The row before may be its key alone; but no value that is not sent is NULL.
        is_known = old.isNotNull() & ~self.unavailable.says(old, self.kind)
        why = F.lit(f"column {self.name}{_UNSENT}")
        number = F.when(unsent, F.col(self._named("old_number")))
        return {
            **found,
            self._named("value"): F.when(~unsent, new).when(is_known, old),
            self._named("number"): number.otherwise(F.col(self._named("new_number"))),
            self._named("unsent"): F.when(unsent & ~is_known & (operation != "d"), why),
        }

    def text(self, fields: Column) -> tuple[Column, list[Column]]:
        """The text of SQL (texts, for a nested type), and what is wrong. `fields`: the schemas of
        the row's fields."""
        from pyspark.sql import functions as F  # noqa: N812 - its usual name

        value, unsent = F.col(self._named("value")), F.col(self._named("unsent"))
        if not self._is_leaf:
            return value, [unsent]
        kind, field = type_text(self.kind), self._named("field")
        sql = connect.text(self._named("value"), field, self._named("number"), kind)
        text, is_number = F.expr(sql), F.col(self._named("number"))
        told = F.concat(F.lit(f"column {self.name}: "), value)
        problems = [unsent]
        if sql != self._named("value"):
            why = F.concat(told, F.lit(" is not "), F.col(f"{field}.name"))
            problems.append(F.when(value.isNotNull() & text.isNull(), why))
        if not kind.startswith("decimal"):
            return text, problems
        silent = fields.isNull() & ~is_number & value.isNotNull()
        if self.decimals == PRECISE:
            scale = kind.partition(",")[2].rstrip(")")
            number = F.expr(connect.decimal_text(self._named("value"), scale))
            why = F.concat(told, F.lit(f" is not {connect.DECIMAL}"))
            bad = F.when(silent & number.isNull(), why)
            return F.when(silent, number).otherwise(text), [*problems, bad]
        if self.decimals is None:
            may_be_bytes = value.rlike("^[A-Za-z0-9+/]+={0,2}$") & (F.length(value) % 4 == 0)
            why = F.lit(" may be a number or its bytes in base64: `decimal_handling` says which")
            problems.append(F.when(silent & may_be_bytes, F.concat(told, why)))
        return text, problems

    @property
    def _is_leaf(self) -> bool:
        return not is_nested(self.kind) and type_text(self.kind) != "variant"

    @property
    def _is_always_sent(self) -> bool:
        return type_text(self.kind) in _SHORT

    def _named(self, what: str) -> str:
        return f"{HIDDEN_PREFIX}{what}_{self.number}"


def as_texts_of(kind: DataType) -> DataType:
    """`as_texts` of one type."""
    from pyspark.sql.types import StructField, StructType

    return as_texts(StructType([StructField("one", kind)]))["one"].dataType
