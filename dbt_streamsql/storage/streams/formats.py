"""How the bytes or text of a record become columns. What cannot be read becomes a PROBLEM.

Values travel as text up to here, and each is cast to its declared type: so a value that does not
fit is told by its column, where Spark's own readers would give NULL. A missing field is NULL.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from dbt_streamsql.errors import Place, StreamSqlError
from dbt_streamsql.plan.schema import HIDDEN_PREFIX
from dbt_streamsql.quoting import quote
from dbt_streamsql.storage.columns import type_text
from dbt_streamsql.storage.streams import avro
from dbt_streamsql.storage.streams.options import Options
from dbt_streamsql.storage.streams.records import json_text, times
from dbt_streamsql.storage.streams.records.json_text import CORRUPT, MARK, ROW
from dbt_streamsql.storage.streams.records.values import (
    Values,
    as_texts,
    converted,
    is_nested,
    not_of,
    unfit,
)
from dbt_streamsql.storage.streams.rows import Columns
from dbt_streamsql.storage.streams.source import AT, PROBLEM, RAW

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

VALUE = f"{HIDDEN_PREFIX}value"
"""The column of a frame that a format decodes: text or bytes. `AT` must be there too."""

BROKEN = f"{HIDDEN_PREFIX}broken"
"""A column that such a frame may have: what is wrong with the record whatever its format."""

PARSED = f"{HIDDEN_PREFIX}parsed"
NOT_TEXT = "it is not UTF-8"


class Format(Protocol):
    """One way to write records."""

    def columns(self, spark: SparkSession) -> Columns:
        """What a record has. Error: CONFIG_INVALID for types that there are not."""

    def decode(self, spark: SparkSession, frame: DataFrame, own: Sequence[str]) -> DataFrame:
        """`columns`, then `own` of the frame as they are, RAW, AT and PROBLEM."""


@dataclass(frozen=True)
class Declared:
    """The columns that a source declares, and how times are written in its texts."""

    columns: Columns
    schema: str
    timestamp_format: str | None
    date_format: str | None
    place: Place

    def types(self, spark: SparkSession) -> StructType:
        """As Spark's types. Error: CONFIG_INVALID, for patterns of times too."""
        from pyspark.errors import PySparkException
        from pyspark.sql import functions as F  # noqa: N812 - its usual name

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

    def typed(self, types: StructType, texts: Column) -> tuple[dict[str, Column], list[Column]]:
        """Values of the columns out of a struct as `as_texts` has it, and what is wrong."""
        from pyspark.sql import functions as F  # noqa: N812 - its usual name

        made = Values(self.timestamp_format, self.date_format)
        values: dict[str, Column] = {}
        problems: list[Column] = []
        for each in types:
            given, kind = texts.getField(each.name), each.dataType
            values[each.name] = made.value(given, kind)
            told = F.to_json(given) if is_nested(kind) else given.cast("string")
            problems.append(F.when(made.unfit(given, kind), unfit(each.name, told, kind)))
        return values, problems


@dataclass(frozen=True)
class Json:
    """One JSON object a record."""

    declared: Declared

    def columns(self, spark: SparkSession) -> Columns:
        return self.declared.told(spark)

    def decode(self, spark: SparkSession, frame: DataFrame, own: Sequence[str]) -> DataFrame:
        from pyspark.sql import functions as F  # noqa: N812 - its usual name

        types = self.declared.types(spark)
        text = text_of()
        parsed = F.col(PARSED)
        shape = as_texts(types)
        row = json_text.plain_texts(parsed.getField(ROW), shape, parsed.getField(MARK))
        known = frame.withColumn(PARSED, json_text.parse(text, shape)).withColumn(ROW, row)
        values, problems = self.declared.typed(types, F.col(ROW))
        broken = json_text.broken(text, parsed, types)
        return finished(known, values, own, shown(text), [not_text(), broken, *problems])


@dataclass(frozen=True)
class Csv:
    """One line of separated values a record, in the order of the declared columns."""

    declared: Declared
    options: Mapping[str, str]

    def columns(self, spark: SparkSession) -> Columns:
        return self.declared.told(spark)

    def decode(self, spark: SparkSession, frame: DataFrame, own: Sequence[str]) -> DataFrame:
        from pyspark.sql import functions as F  # noqa: N812 - its usual name

        types = self.declared.types(spark)
        text = text_of()
        parsed = F.from_csv(text, type_text(with_corrupt(as_texts(types))), self.reader())
        known = frame.withColumn(ROW, parsed)
        return self.rows(known, types, own, shown(text), [not_text()])

    def rows(
        self,
        frame: DataFrame,
        types: StructType,
        own: Sequence[str],
        text: Column,
        before: Sequence[Column],
    ) -> DataFrame:
        """The same from a frame whose column `ROW` has the fields as texts."""
        from pyspark.sql import functions as F  # noqa: N812 - its usual name

        row = F.col(ROW)
        values, problems = self.declared.typed(types, row)
        count = F.lit(f"it has not {len(types)} fields, or a quote that is not closed")
        broken = F.when(row.getField(CORRUPT).isNotNull(), count)
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
        from pyspark.sql import functions as F  # noqa: N812 - its usual name

        del spark
        value = F.col(VALUE).cast(self.kind)
        if self.kind == "binary":
            return finished(frame, {"value": value}, own, F.base64(F.col(VALUE)), [])
        return finished(frame, {"value": value}, own, shown(value), [not_text()])


@dataclass(frozen=True)
class Avro:
    """One Avro datum a record, with or without the five bytes that name its schema."""

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
        from pyspark.sql import functions as F  # noqa: N812 - its usual name

        row, problem = self.schemas.read(F.col(VALUE))
        known = frame.withColumn(ROW, row).withColumn(PROBLEM, problem)
        broken = F.coalesce(
            F.col(PROBLEM),
            F.when(
                F.col(VALUE).isNotNull() & F.col(ROW).getField(avro.MARK).isNull(),
                F.lit("it is not what its Avro schema says"),
            ),
        )
        values, problems = cast_all(
            F.col(ROW), self.schemas.types(spark), self.declared.types(spark)
        )
        raw = F.base64(F.col(VALUE))
        return finished(known, values, own, raw, [broken, *problems])


def cast_all(
    row: Column, there: StructType, wanted: StructType
) -> tuple[dict[str, Column], list[Column]]:
    """The fields of a struct with the types that are declared (all of them if none is)."""
    from pyspark.sql import functions as F  # noqa: N812 - its usual name

    kinds = {each.name: each.dataType for each in there}
    values: dict[str, Column] = {}
    problems: list[Column] = []
    for each in wanted if len(wanted) else there:
        given = row.getField(each.name)
        values[each.name] = given
        if kinds[each.name] != each.dataType:
            kind = type_text(each.dataType)
            values[each.name] = converted(given, type_text(kinds[each.name]), kind)
            why = not_of(each.name, given.cast("string"), kind)
            problems.append(F.when(given.isNotNull() & values[each.name].isNull(), why))
    return values, problems


def with_corrupt(types: StructType) -> StructType:
    """The same columns, and the text of a record that they do not fit."""
    from pyspark.sql.types import StringType, StructField, StructType

    return StructType([*types.fields, StructField(CORRUPT, StringType())])


def text_of() -> Column:
    from pyspark.sql import functions as F  # noqa: N812 - its usual name

    return F.col(VALUE).cast("string")


def not_text() -> Column:
    """What is wrong with bytes that are no text."""
    from pyspark.sql import functions as F  # noqa: N812 - its usual name

    return F.when(~F.is_valid_utf8(F.col(VALUE).cast("string")), F.lit(NOT_TEXT))


def shown(text: Column) -> Column:
    """The text of a record; of one that is no text, its bytes in base64."""
    from pyspark.sql import functions as F  # noqa: N812 - its usual name

    bytes_of = F.base64(text.cast("binary"))
    return F.when(F.is_valid_utf8(text), text).otherwise(bytes_of)


def finished(
    frame: DataFrame,
    values: Mapping[str, Column],
    own: Sequence[str],
    raw: Column,
    problems: Sequence[Column],
) -> DataFrame:
    """What `Format.decode` gives. The first of the problems is told."""
    from pyspark.sql import functions as F  # noqa: N812 - its usual name

    if BROKEN in frame.columns:
        problems = [F.col(BROKEN), *problems]
    problem = F.coalesce(*problems) if problems else F.lit(None)
    known = frame.select(
        *(value.alias(name) for name, value in values.items()),
        *own,
        raw.alias(RAW),
        F.col(AT).cast("string").alias(AT),
        problem.cast("string").alias(PROBLEM),
    )
    if not problems:
        return known
    good = F.col(PROBLEM).isNull()
    columns = [F.when(good, F.col(quote(name))).alias(name) for name in (*values, *own)]
    return known.select(*columns, RAW, AT, PROBLEM)


def with_own(columns: Columns, own: Columns, place: Place) -> Columns:
    """Both. Error: CONFIG_INVALID for names that cannot be told apart."""
    names = [name.lower() for name, _ in (*columns, *own)]
    twice = sorted({n for n in names if names.count(n) > 1 or n.startswith(HIDDEN_PREFIX)})
    if twice:
        raise StreamSqlError(
            "CONFIG_INVALID",
            "the source has column names that cannot be told apart",
            given=", ".join(twice),
            allowed="names that differ by more than case, and none of the connector's: "
            + ", ".join(name for name, _ in own),
            place=place,
        )
    return columns + own


def format_of(options: Options, known: Sequence[str]) -> Format:
    """The format that a source declares, with its options; what is wrong is noted there."""
    from dbt_streamsql.storage.streams.debezium import debezium_of

    name = str(options.format or "")
    if name not in known:
        options.wrong(
            f"`format` is {name!r}: one of {', '.join(known)}"
            if name
            else f"`format` is missing: one of {', '.join(known)}"
        )
    given = declared_of(options, name)
    if name == "raw":
        return Text(dict(options.columns).get("value", "string"))
    if name == "text":
        return Text()
    if name == "avro":
        return Avro(avro.schemas_of(options), given)
    if name == "csv":
        return Csv(given, csv_options(options))
    return debezium_of(options, given) if name == "debezium" else Json(given)


def declared_of(options: Options, name: str) -> Declared:
    needed = name in ("json", "csv", "debezium")
    if needed and not options.columns and not options.schema:
        options.wrong("no column has a type: `columns` with `data_type`, or `schema`")
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
            "null_value", lambda v: v if isinstance(v, str) else None, "a text", ""
        ),
    }
    return {key: value for key, value in given.items() if value is not None}
