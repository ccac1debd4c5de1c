"""Debezium's envelopes of changes, as JSON with or without `schema` and `payload` around."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dbt_streamsql.plan.schema import HIDDEN_PREFIX
from dbt_streamsql.storage.streams import formats
from dbt_streamsql.storage.streams.formats import VALUE, Declared
from dbt_streamsql.storage.streams.options import Options
from dbt_streamsql.storage.streams.records import json_text, times
from dbt_streamsql.storage.streams.records.cells import PRECISE, Cell, Unavailable
from dbt_streamsql.storage.streams.records.connect import FIELD
from dbt_streamsql.storage.streams.records.json_text import MARK, ROW
from dbt_streamsql.storage.streams.records.values import as_texts
from dbt_streamsql.storage.streams.rows import Columns

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

OWN = (("_op", "string"), ("_ts", "timestamp"), ("_lsn", "bigint"), ("_source", "string"))
OPERATIONS = ("c", "r", "u", "d", "t")
_ENVELOPE, _CHANGE, _OP, _LAST, _TOLD, _FIELDS = (
    f"{HIDDEN_PREFIX}{name}" for name in ("envelope", "change", "op", "last", "told", "fields")
)
_UNAVAILABLE = "__debezium_unavailable_value"
_SCHEMA = f"struct<fields:array<struct<field:string,fields:array<{FIELD}>>>>"
"""What is read of the schema of an envelope."""


@dataclass(frozen=True)
class Debezium:
    """The columns of the row after a change, or before it when the row is gone.

    A record without a value (Kafka's tombstone after a delete) is left out: it says nothing that
    the delete has not said. `decimals`: how decimals are written where no schema tells it; None:
    as numbers, and a text that may be bytes is a bad record.
    """

    declared: Declared
    decimals: str | None
    unavailable: Unavailable

    def columns(self, spark: SparkSession) -> Columns:
        return self.declared.told(spark) + OWN

    def decode(self, spark: SparkSession, frame: DataFrame, own: Sequence[str]) -> DataFrame:
        from pyspark.sql import functions as F  # noqa: N812 - its usual name

        types = self.declared.types(spark)
        text = formats.text_of()
        change, envelope = _shapes(types)
        parsed, found, row = F.col(_ENVELOPE), F.col(_CHANGE), F.col(ROW)
        given, mark = parsed.getField(ROW), parsed.getField(MARK)
        bare = F.struct(*(given.getField(name).alias(name) for name in change.names))
        operation = F.col(_OP)
        known = (
            frame.where(F.col(VALUE).isNotNull())
            .withColumn(_ENVELOPE, json_text.parse(text, envelope, all_numbers=True))
            .withColumn(_CHANGE, F.coalesce(given.getField("payload"), bare))
            .withColumn(_OP, json_text.plain(found.getField("op"), mark))
            .withColumn(_FIELDS, _fields(given.getField("schema")))
        )
        before, after = found.getField("before"), found.getField("after")
        last = F.when(operation == "d", before).otherwise(after)
        known = known.withColumn(_LAST, last)
        cells = [
            Cell(at, each.name, each.dataType, self.unavailable, self.decimals)
            for at, each in enumerate(types)
        ]
        for step in (
            [cell.parsed(F.col(_LAST), before, mark) for cell in cells],
            [cell.sent(operation, F.col(_FIELDS)) for cell in cells],
        ):
            known = known.withColumns(dict(pair for made in step for pair in made.items()))
        texts = [cell.text(F.col(_FIELDS)) for cell in cells]
        named = (text.alias(cell.name) for cell, (text, _) in zip(cells, texts, strict=True))
        told = [problem for _, problems in texts for problem in problems]
        known = known.withColumn(_TOLD, F.coalesce(*told))
        known = known.withColumn(ROW, F.when(F.col(_LAST).isNotNull(), F.struct(*named)))
        values, problems = self.declared.typed(types, row)
        stated = json_text.plain(found.getField("source"), mark)
        moment = json_text.plain(found.getField("ts_ms"), mark)
        written = F.coalesce(F.get_json_object(stated, "$.ts_ms"), moment)
        values |= {
            "_op": operation,
            "_ts": times.timestamp(written, "epoch_ms"),
            "_lsn": F.get_json_object(stated, "$.lsn").try_cast("bigint"),
            "_source": stated,
        }
        broken = [
            formats.not_text(),
            _told(text, F.col(_ENVELOPE), types),
            *_not_a_change(operation, row),
            F.col(_TOLD),
        ]
        return formats.finished(known, values, own, formats.shown(text), [*broken, *problems])


def debezium_of(options: Options, declared: Declared) -> Debezium:
    """With the options `decimal_handling` and `unavailable_value`; mistakes are noted."""
    handling = options.choice("decimal_handling", (PRECISE, "string", "double"), None)
    word = options.text("unavailable_value", _UNAVAILABLE)
    return Debezium(declared, handling, Unavailable(word or _UNAVAILABLE))


def _fields(schema: Column) -> Column:
    """The schemas of a row's fields; NULL when the record has none."""
    from pyspark.sql import functions as F  # noqa: N812 - its usual name

    rows = F.filter(
        schema.getField("fields"), lambda each: each.getField("field").isin("after", "before")
    )
    return F.get(rows, F.lit(0)).getField("fields")


def _shapes(types: StructType) -> tuple[StructType, StructType]:
    """A change, and an envelope that may have it under `payload` or be one itself."""
    from pyspark.sql.types import StringType, StructField, StructType

    row = as_texts(types)
    texts = [StructField(name, StringType()) for name in ("op", "ts_ms", "source")]
    change = StructType([StructField("before", row), StructField("after", row), *texts])
    schema = StructField("schema", StructType.fromDDL(_SCHEMA))
    return change, StructType([StructField("payload", change), schema, *change.fields])


def _told(text: Column, envelope: Column, types: StructType) -> Column:
    """What is wrong with an envelope that could not be parsed: it is none, or its row."""
    from pyspark.sql import functions as F  # noqa: N812 - its usual name
    from pyspark.sql.types import StructType

    outer = json_text.fields(text)
    change = json_text.fields(F.coalesce(outer.getItem("payload"), text))
    before, after = change.getItem("before"), change.getItem("after")
    row = F.when(change.getItem("op") == "d", before).otherwise(after)
    alone = json_text.broken(row, json_text.parse_roughly(row, as_texts(types)), types)
    whole = json_text.broken(text, envelope, StructType([]))
    return F.when(whole.isNotNull(), F.coalesce(alone, whole))


def _not_a_change(operation: Column, row: Column) -> list[Column]:
    from pyspark.sql import functions as F  # noqa: N812 - its usual name

    told = F.coalesce(operation, F.lit("missing"))
    unknown = F.concat(F.lit("it is not a change as Debezium writes them: `op` is "), told)
    empty = F.when(operation == "d", F.lit("a delete without `before`"))
    return [
        F.when(operation.isNull() | ~operation.isin(*OPERATIONS), unknown),
        F.when(
            row.isNull() & (operation != "t"), empty.otherwise(F.lit("a change without `after`"))
        ),
    ]
