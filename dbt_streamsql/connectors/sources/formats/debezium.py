"""Debezium change envelopes, as JSON with or without `schema` and `payload` around them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dbt_streamsql.connectors.options import Options
from dbt_streamsql.connectors.sources.formats import decoding
from dbt_streamsql.connectors.sources.formats.decoding import (
    IS_NOT_TEXT,
    SHOWN,
    TEXT,
    VALUE,
    Declared,
)
from dbt_streamsql.connectors.sources.records import json_text, times
from dbt_streamsql.connectors.sources.records.cells import PRECISE, Cell, Unavailable
from dbt_streamsql.connectors.sources.records.connect import FIELD
from dbt_streamsql.connectors.sources.records.json_text import MARK, ROW
from dbt_streamsql.connectors.sources.records.sql import (
    coalesce,
    field,
    let,
    one_of,
    struct,
    when,
)
from dbt_streamsql.connectors.sources.records.values import as_texts
from dbt_streamsql.connectors.sources.rows import Columns
from dbt_streamsql.connectors.sources.source import Omissions
from dbt_streamsql.plan.algebra.schema import HIDDEN_PREFIX
from dbt_streamsql.quoting import literal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

OWN = (("_op", "string"), ("_ts", "timestamp"), ("_lsn", "bigint"), ("_source", "string"))
OPERATIONS = ("c", "r", "u", "d", "t")
_ENVELOPE, _CHANGE, _OP, _LAST, _TOLD, _FIELDS = (
    f"{HIDDEN_PREFIX}{name}" for name in ("envelope", "change", "op", "last", "told", "fields")
)
_UNKNOWN = "it is not a Debezium change: `op` is "
_UNAVAILABLE = "__debezium_unavailable_value"
_SCHEMA = f"struct<fields:array<struct<field:string,fields:array<{FIELD}>>>>"
"""The part of an envelope's schema that is read."""


@dataclass(frozen=True)
class Debezium:
    """The columns of the row after a change, or before it for a delete.

    A record without a value (Kafka's tombstone after a delete) is skipped: it adds nothing to the
    delete. `decimals`: how decimals are encoded when no schema gives it; None: as numbers, and
    text that may be bytes is a bad record.
    """

    declared: Declared
    decimals: str | None
    unavailable: Unavailable

    def columns(self, spark: SparkSession) -> Columns:
        return self.declared.told(spark) + OWN

    def decode(self, spark: SparkSession, frame: DataFrame, own: Sequence[str]) -> DataFrame:
        types = self.declared.types(spark)
        change, envelope = _shapes(types)
        given, mark = field(_ENVELOPE, ROW), field(_ENVELOPE, MARK)
        bare = struct((name, field(given, name)) for name in change.names)
        before, after = field(_CHANGE, "before"), field(_CHANGE, "after")
        cells = [
            Cell(at, each.name, each.dataType, self.unavailable, self.decimals)
            for at, each in enumerate(types)
        ]
        texts = [(cell.name, *cell.text(_FIELDS)) for cell in cells]
        unsent = {cell.name: cell.unsent for cell in cells if not cell.is_always_sent}
        row = struct((name, text) for name, text, _ in texts)
        # The result of each step is a column for the next, which uses it several times.
        steps: list[dict[str, str]] = [
            {_ENVELOPE: json_text.parse(TEXT, envelope, all_numbers=True)},
            {
                _CHANGE: f"coalesce({field(given, 'payload')}, {bare})",
                _FIELDS: _fields(field(given, "schema")),
            },
            {_OP: json_text.plain(field(_CHANGE, "op"), mark)},
            {_LAST: f"if({_OP} = 'd', {before}, {after})"},
            _of_all(cell.parsed(_LAST, before, mark) for cell in cells),
            _of_all(cell.sent(_OP, _FIELDS) for cell in cells),
            _of_all(cell.stated() for cell in cells),
            {
                _TOLD: coalesce(problem for _, _, problems in texts for problem in problems),
                ROW: when(f"{_LAST} IS NOT NULL", row),
            },
        ]
        known = frame.where(f"{VALUE} IS NOT NULL")
        for step in steps:
            known = known.selectExpr("*", *(f"{value} AS {name}" for name, value in step.items()))
        values, problems = self.declared.typed(types, ROW)
        stated = json_text.plain(field(_CHANGE, "source"), mark)
        moment = json_text.plain(field(_CHANGE, "ts_ms"), mark)
        written = f"coalesce(get_json_object({stated}, '$.ts_ms'), {moment})"
        values |= {
            "_op": _OP,
            "_ts": times.timestamp(written, "epoch_ms"),
            "_lsn": f"try_cast(get_json_object({stated}, '$.lsn') AS BIGINT)",
            "_source": stated,
        }
        broken = [
            IS_NOT_TEXT,
            _told(TEXT, _ENVELOPE, types),
            *_not_a_change(_OP, ROW),
            _TOLD,
            # Only an update has a previous row that may supply the value.
            *(when(f"{_OP} <> 'u'", why) for why in unsent.values()),
        ]
        return decoding.finished(known, values, own, SHOWN, [*broken, *problems], unsent)

    def omissions(self, spark: SparkSession) -> Omissions | None:
        kinds = [(each.name, each.dataType) for each in self.declared.types(spark)]
        cells = [Cell(at, *each, self.unavailable, None) for at, each in enumerate(kinds)]
        found = tuple(cell.name for cell in cells if not cell.is_always_sent)
        return Omissions(found) if found else None


def debezium_of(options: Options, declared: Declared) -> Debezium:
    """With the options `decimal_handling` and `unavailable_value`; records mistakes."""
    handling = options.choice("decimal_handling", (PRECISE, "string", "double"), None)
    word = options.text("unavailable_value", _UNAVAILABLE)
    return Debezium(declared, handling, Unavailable(word or _UNAVAILABLE))


def _of_all(made: Iterable[dict[str, str]]) -> dict[str, str]:
    return {name: value for each in made for name, value in each.items()}


def _fields(schema: str) -> str:
    """The schemas of a row's fields; NULL when the record has none."""
    rows = f"filter({field(schema, 'fields')}, x -> x.field IN ('after', 'before'))"
    return field(f"get({rows}, 0)", "fields")


def _shapes(types: StructType) -> tuple[StructType, StructType]:
    """A change, and an envelope that has it under `payload` or is one itself."""
    from pyspark.sql.types import StringType, StructField, StructType

    row = as_texts(types)
    texts = [StructField(name, StringType()) for name in ("op", "ts_ms", "source")]
    change = StructType([StructField("before", row), StructField("after", row), *texts])
    schema = StructField("schema", StructType.fromDDL(_SCHEMA))
    return change, StructType([StructField("payload", change), schema, *change.fields])


def _told(text: str, envelope: str, types: StructType) -> str:
    """What is wrong with an unparsable envelope: it is not one, or its row is bad."""
    from pyspark.sql.types import StructType

    whole = json_text.broken(text, envelope, StructType([]))
    outer = json_text.fields(text)
    change = json_text.fields(f"coalesce({outer}['payload'], {text})")
    row = "if(c['op'] = 'd', c['before'], c['after'])"
    alone = json_text.broken("r", "p", types)
    parsed = let(json_text.parse_roughly("r", as_texts(types)), "p", alone)
    inner = let(change, "c", let(row, "r", parsed))
    return when(f"{whole} IS NOT NULL", f"coalesce({inner}, {whole})")


def _not_a_change(operation: str, row: str) -> list[str]:
    unknown = f"concat({literal(_UNKNOWN)}, coalesce({operation}, 'missing'))"
    known = one_of(operation, OPERATIONS)
    empty = f"if({operation} = 'd', 'a delete without `before`', 'a change without `after`')"
    return [
        when(f"{operation} IS NULL OR NOT {known}", unknown),
        when(f"{row} IS NULL AND {operation} <> 't'", empty),
    ]
