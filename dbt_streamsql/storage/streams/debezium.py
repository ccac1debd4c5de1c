"""Debezium's envelopes of changes, as JSON with or without `schema` and `payload` around."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dbt_streamsql.plan.schema import HIDDEN_PREFIX
from dbt_streamsql.storage.streams import formats
from dbt_streamsql.storage.streams.formats import VALUE, Declared
from dbt_streamsql.storage.streams.records import json_text, times
from dbt_streamsql.storage.streams.records.json_text import MARK, ROW
from dbt_streamsql.storage.streams.records.values import as_texts
from dbt_streamsql.storage.streams.rows import Columns

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

OWN = (("_op", "string"), ("_ts", "timestamp"), ("_lsn", "bigint"), ("_source", "string"))
OPERATIONS = ("c", "r", "u", "d", "t")
_ENVELOPE, _CHANGE = (f"{HIDDEN_PREFIX}{name}" for name in ("envelope", "change"))


@dataclass(frozen=True)
class Debezium:
    """The columns of the row after a change, or before it when the row is gone.

    A record without a value (Kafka's tombstone after a delete) is left out: it says nothing that
    the delete has not said.
    """

    declared: Declared

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
        operation = json_text.plain(found.getField("op"), mark)
        before, after = found.getField("before"), found.getField("after")
        last = F.when(operation == "d", before).otherwise(after)
        known = (
            frame.where(F.col(VALUE).isNotNull())
            .withColumn(_ENVELOPE, json_text.parse(text, envelope))
            .withColumn(_CHANGE, F.coalesce(given.getField("payload"), bare))
            .withColumn(ROW, last)
            .withColumn(ROW, json_text.plain_texts(row, as_texts(types), mark))
        )
        values, problems = self.declared.typed(types, row)
        stated = json_text.plain(found.getField("source"), mark)
        written = F.coalesce(F.get_json_object(stated, "$.ts_ms"), found.getField("ts_ms"))
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
        ]
        return formats.finished(known, values, own, formats.shown(text), [*broken, *problems])


def _shapes(types: StructType) -> tuple[StructType, StructType]:
    """A change, and an envelope that may have it under `payload` or be one itself."""
    from pyspark.sql.types import StringType, StructField, StructType

    row = as_texts(types)
    texts = [StructField(name, StringType()) for name in ("op", "ts_ms", "source")]
    change = StructType([StructField("before", row), StructField("after", row), *texts])
    return change, StructType([StructField("payload", change), *change.fields])


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
