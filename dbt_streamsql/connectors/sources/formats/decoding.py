"""Decodes a record's bytes or text into columns. What cannot be read becomes a PROBLEM.

Values stay text up to here, and each is cast to its declared type: so the error for a value that
does not fit names its column, where Spark's readers would return NULL. A missing field is NULL.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from dbt_streamsql.connectors.options import Options
from dbt_streamsql.connectors.sources.formats import avro
from dbt_streamsql.connectors.sources.records import json_text, times
from dbt_streamsql.connectors.sources.records.json_text import CORRUPT, MARK, ROW
from dbt_streamsql.connectors.sources.records.sql import (
    coalesce,
    field,
    struct,
    when,
)
from dbt_streamsql.connectors.sources.records.values import (
    Values,
    as_texts,
    converted,
    is_nested,
    not_of,
    unfit_message,
)
from dbt_streamsql.connectors.sources.rows import Columns
from dbt_streamsql.connectors.sources.source import (
    AS_READ,
    AT,
    PROBLEM,
    RAW,
    UNSENT,
    Omissions,
    Omitting,
)
from dbt_streamsql.errors import Place, StreamSqlError
from dbt_streamsql.plan.algebra.schema import HIDDEN_PREFIX
from dbt_streamsql.quoting import literal, quote
from dbt_streamsql.storage.columns import type_text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

VALUE = f"{HIDDEN_PREFIX}value"
"""The column that a format decodes: text or bytes. The frame must have `AT` too."""

BROKEN = f"{HIDDEN_PREFIX}broken"
"""An optional column of such a frame: what is wrong with the record in any format."""

PARSED = f"{HIDDEN_PREFIX}parsed"
_WHY = f"{HIDDEN_PREFIX}why"
NOT_TEXT = "it is not UTF-8"
TEXT = f"CAST({VALUE} AS STRING)"
IS_NOT_TEXT = when(f"NOT is_valid_utf8({TEXT})", literal(NOT_TEXT))
"""What is wrong with bytes that are not text."""
SHOWN = f"if(is_valid_utf8({TEXT}), {TEXT}, base64(CAST({TEXT} AS BINARY)))"
"""The text of a record, or its bytes in base64 when they are not text."""

_NOT_MOVED = "if(spark_partition_id() < 0, '', NULL)"
"""Never a problem, and not deterministic, so that Spark does not push down a filter on PROBLEM.
Pushed down to the scan, the filter would inline each step of a record in the next: 66 MB for two
Debezium columns."""


class Format(Protocol):
    """One record format."""

    def columns(self, spark: SparkSession) -> Columns:
        """The columns of a record. Error: CONFIG_INVALID for unknown types."""

    def decode(self, spark: SparkSession, frame: DataFrame, own: Sequence[str]) -> DataFrame:
        """`columns`, then `own` of the frame unchanged, RAW, AT and PROBLEM."""


@dataclass(frozen=True)
class Declared:
    """The columns that a source declares, and the format of times in its text."""

    columns: Columns
    schema: str
    timestamp_format: str | None
    date_format: str | None
    place: Place

    def types(self, spark: SparkSession) -> StructType:
        """As Spark types. Error: CONFIG_INVALID, also for invalid time patterns."""
        from pyspark.errors import PySparkException
        from pyspark.sql import functions as F

        times.check(spark, "timestamp_format", self.timestamp_format, self.place)
        times.check(spark, "date_format", self.date_format, self.place)
        try:
            if self.schema:
                return spark.createDataFrame([], self.schema).schema
            given = [F.lit(None).cast(kind).alias(name) for name, kind in self.columns]
            return spark.range(0).select(*given).schema
        except PySparkException as error:
            raise StreamSqlError(
                "CONFIG_INVALID",
                "the columns of the source have a type that Spark does not know",
                given=self.schema or ", ".join(f"{name} {kind}" for name, kind in self.columns),
                allowed="types such as bigint, decimal(10,2), timestamp, array<string>",
                hint=str(error).splitlines()[0],
                place=self.place,
            ) from error

    def told(self, spark: SparkSession) -> Columns:
        return tuple((f.name, type_text(f.dataType)) for f in self.types(spark))

    def typed(self, types: StructType, texts: str) -> tuple[dict[str, str], list[str]]:
        """SQL for the column values from a struct as `as_texts` has it, and for what is wrong;
        `finished` takes both."""
        made = Values(self.timestamp_format, self.date_format)
        values: dict[str, str] = {}
        problems: list[str] = []
        for each in types:
            given, kind = field(texts, each.name), each.dataType
            values[each.name] = made.value(given, kind)
            bad = f"{given} IS NOT NULL AND {held(each.name)} IS NULL"
            told = f"CAST({given} AS STRING)"
            if is_nested(kind):
                bad, told = made.unfit(given, kind), f"to_json({given})"
            problems.append(when(bad, unfit_message(each.name, told, kind)))
        return values, problems


@dataclass(frozen=True)
class Json:
    """One JSON object per record."""

    declared: Declared

    def columns(self, spark: SparkSession) -> Columns:
        return self.declared.told(spark)

    def decode(self, spark: SparkSession, frame: DataFrame, own: Sequence[str]) -> DataFrame:
        types = self.declared.types(spark)
        shape = as_texts(types)
        row = json_text.plain_texts(field(PARSED, ROW), shape, field(PARSED, MARK))
        known = frame.selectExpr("*", f"{json_text.parse(TEXT, shape)} AS {PARSED}")
        known = known.selectExpr("*", f"{row} AS {ROW}")
        values, problems = self.declared.typed(types, ROW)
        broken = json_text.broken(TEXT, PARSED, types)
        return finished(known, values, own, SHOWN, [IS_NOT_TEXT, broken, *problems])


@dataclass(frozen=True)
class Csv:
    """One line of separated values per record, in the order of the declared columns."""

    declared: Declared
    options: Mapping[str, str]

    def columns(self, spark: SparkSession) -> Columns:
        return self.declared.told(spark)

    def decode(self, spark: SparkSession, frame: DataFrame, own: Sequence[str]) -> DataFrame:
        from pyspark.sql import functions as F

        types = self.declared.types(spark)
        shape = type_text(with_corrupt(as_texts(types)))
        known = frame.withColumn(ROW, F.from_csv(F.expr(TEXT), shape, self.reader()))
        return self.rows(known, types, own, SHOWN, [IS_NOT_TEXT])

    def rows(
        self,
        frame: DataFrame,
        types: StructType,
        own: Sequence[str],
        text: str,
        before: Sequence[str],
    ) -> DataFrame:
        """The same from a frame whose column `ROW` has the fields as text."""
        values, problems = self.declared.typed(types, ROW)
        count = f"'it does not have {len(types)} fields, or a quote is not closed'"
        broken = when(f"{field(ROW, CORRUPT)} IS NOT NULL", count)
        return finished(frame, values, own, text, [*before, broken, *problems])

    def reader(self) -> dict[str, str]:
        """Options of Spark's CSV reader."""
        return {**self.options, "mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}


@dataclass(frozen=True)
class Text:
    """The record itself, as the one column `value`."""

    kind: str = "string"

    def columns(self, spark: SparkSession) -> Columns:
        del spark
        return (("value", self.kind),)

    def decode(self, spark: SparkSession, frame: DataFrame, own: Sequence[str]) -> DataFrame:
        del spark
        value = f"CAST({VALUE} AS {self.kind})"
        if self.kind == "binary":
            return finished(frame, {"value": value}, own, f"base64({VALUE})", [])
        return finished(frame, {"value": value}, own, SHOWN, [IS_NOT_TEXT])


@dataclass(frozen=True)
class Avro:
    """One Avro datum per record, with or without the five bytes that identify its schema."""

    schemas: avro.Schemas
    declared: Declared

    def columns(self, spark: SparkSession) -> Columns:
        there, wanted = self.schemas.types(spark), self.declared.types(spark)
        missing = sorted(set(wanted.names) - set(there.names))
        if missing:
            raise StreamSqlError(
                "CONFIG_INVALID",
                "the Avro schema has no such field",
                given=", ".join(missing),
                allowed=", ".join(there.names),
                place=self.declared.place,
            )
        return tuple((f.name, type_text(f.dataType)) for f in (wanted if len(wanted) else there))

    def decode(self, spark: SparkSession, frame: DataFrame, own: Sequence[str]) -> DataFrame:
        from pyspark.sql import functions as F

        row, problem = self.schemas.read(F.col(VALUE))
        known = frame.withColumn(ROW, row).withColumn(PROBLEM, problem)
        unread = f"{VALUE} IS NOT NULL AND {field(ROW, avro.MARK)} IS NULL"
        broken = [PROBLEM, when(unread, "'it does not match its Avro schema'")]
        values, problems = cast_all(ROW, self.schemas.types(spark), self.declared.types(spark))
        return finished(known, values, own, f"base64({VALUE})", [*broken, *problems])


def cast_all(row: str, there: StructType, wanted: StructType) -> tuple[dict[str, str], list[str]]:
    """SQL for the fields of a struct in their declared types (all fields if none is declared),
    and for what is wrong."""
    kinds = {each.name: each.dataType for each in there}
    values: dict[str, str] = {}
    problems: list[str] = []
    for each in wanted if len(wanted) else there:
        given, name = field(row, each.name), each.name
        values[name] = given
        if kinds[name] != each.dataType:
            kind = type_text(each.dataType)
            values[name] = converted(given, type_text(kinds[name]), kind)
            why = not_of(name, f"CAST({given} AS STRING)", kind)
            problems.append(when(f"{given} IS NOT NULL AND {held(name)} IS NULL", why))
    return values, problems


def with_corrupt(types: StructType) -> StructType:
    """The same columns, and the text of a record that does not fit them."""
    from pyspark.sql.types import StringType, StructField, StructType

    return StructType([*types.fields, StructField(CORRUPT, StringType())])


def held(name: str) -> str:
    """The value of a column, as a column next to the record it comes from."""
    return quote(f"{HIDDEN_PREFIX}of_{name}")


def finished(
    frame: DataFrame,
    values: Mapping[str, str],
    own: Sequence[str],
    raw: str,
    problems: Sequence[str],
    unsent: Mapping[str, str] | None = None,
) -> DataFrame:
    """The result of `Format.decode`, from SQL expressions: those of `problems` may use the values
    as they are `held`. The first problem is reported.

    `unsent`: for columns whose values may not have been sent, the message when one was not (else
    NULL); then UNSENT and AS_READ are included.
    """
    unsent = unsent or {}
    is_sparse = bool(unsent)
    if BROKEN in frame.columns:
        problems = [BROKEN, *problems]
    made = (f"{value} AS {held(name)}" for name, value in values.items())
    ends = [f"{raw} AS {RAW}", f"CAST({AT} AS STRING) AS {AT}"]
    known = frame.selectExpr("*", *made).selectExpr(
        *(f"{held(name)} AS {quote(name)}" for name in values),
        *map(quote, own),
        *ends,
        f"{coalesce([*problems, _NOT_MOVED])} AS {PROBLEM}",
        *([f"{_names(unsent)} AS {UNSENT}", f"{coalesce(unsent.values())} AS {_WHY}"] * is_sparse),
    )
    if not problems:
        return known
    columns = [f"{when(f'{PROBLEM} IS NULL', quote(n))} AS {quote(n)}" for n in (*values, *own)]
    if not is_sparse:
        return known.selectExpr(*columns, RAW, AT, PROBLEM)
    read = struct((name, quote(name)) for name in (*values, *own))
    rest = f"{when(f'{PROBLEM} IS NOT NULL', read)} AS {AS_READ}"
    told = f"coalesce({PROBLEM}, {_WHY}) AS {PROBLEM}"
    left = f"{when(f'{PROBLEM} IS NULL AND {_WHY} IS NOT NULL', UNSENT)} AS {UNSENT}"
    return known.selectExpr(*columns, RAW, AT, told, left, rest)


def _names(unsent: Mapping[str, str]) -> str:
    """The columns that were not sent."""
    names = (when(f"{why} IS NOT NULL", literal(name)) for name, why in unsent.items())
    return f"filter(array({', '.join(names)}), x -> x IS NOT NULL)"


def omissions(form: Format, spark: SparkSession) -> Omissions | None:
    """What changes in a format may omit; most formats have no changes."""
    return form.omissions(spark) if isinstance(form, Omitting) else None


def with_own(columns: Columns, own: Columns, place: Place) -> Columns:
    """Both. Error: CONFIG_INVALID for names that clash."""
    names = [name.lower() for name, _ in (*columns, *own)]
    twice = sorted({n for n in names if names.count(n) > 1 or n.startswith(HIDDEN_PREFIX)})
    if twice:
        raise StreamSqlError(
            "CONFIG_INVALID",
            "the source has column names that clash",
            given=", ".join(twice),
            allowed="names that differ in more than case, and none of the connector's own: "
            + ", ".join(name for name, _ in own),
            place=place,
        )
    return columns + own


def declared_of(options: Options, name: str) -> Declared:
    needed = name in ("json", "csv", "debezium")
    if needed and not options.columns and not options.schema:
        options.wrong("no column has a type: set `columns` with `data_type`, or `schema`")
    timestamps = options.text("timestamp_format", None) if needed else None
    dates = options.text("date_format", None) if needed else None
    return Declared(options.columns, options.schema, timestamps, dates, options.place)


def csv_options(options: Options) -> dict[str, str]:
    """Options of Spark's CSV reader."""
    given = {
        "sep": options.text("separator", ","),
        "quote": options.text("quote", '"'),
        "escape": options.text("escape", '"'),
        "nullValue": options.get(
            "null_value", lambda v: v if isinstance(v, str) else None, "a string", ""
        ),
    }
    return {key: value for key, value in given.items() if value is not None}
