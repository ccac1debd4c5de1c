"""Reads the records of files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Protocol

from dbt_streamsql.connectors.options import Options
from dbt_streamsql.connectors.sources.files.folder_listing import Entry, literal_paths
from dbt_streamsql.connectors.sources.formats import avro, decoding
from dbt_streamsql.connectors.sources.formats.decoding import (
    BROKEN,
    NOT_TEXT,
    VALUE,
    Csv,
    Declared,
    Format,
)
from dbt_streamsql.connectors.sources.formats.registry import format_of
from dbt_streamsql.connectors.sources.records.json_text import CORRUPT, ROW
from dbt_streamsql.connectors.sources.records.sql import field, struct, when
from dbt_streamsql.connectors.sources.records.values import as_texts
from dbt_streamsql.connectors.sources.rows import Columns, records
from dbt_streamsql.connectors.sources.source import AT, Omissions
from dbt_streamsql.errors import Place, StreamSqlError
from dbt_streamsql.plan.algebra.schema import HIDDEN_PREFIX
from dbt_streamsql.quoting import literal
from dbt_streamsql.storage.columns import type_text

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

WHOLE = 8 << 20
"""Size in bytes up to which a text file is read whole, so that its lines have numbers."""
_OWN = ("_file", "_modified")
_LINE = f"{HIDDEN_PREFIX}line"
_BOM, _REPLACED = "\ufeff", "\ufffd"


class Reader(Protocol):
    """Reads files of one format."""

    def columns(self, spark: SparkSession, first: Callable[[], Sequence[Entry]]) -> Columns:
        """The columns of the records; `first` returns a file that may be inspected."""

    def read(
        self, spark: SparkSession, files: Sequence[Entry], columns: Columns, base: str
    ) -> DataFrame:
        """Their records, as `Source.read` returns them; places are relative to `base`."""


@dataclass(frozen=True)
class Lines:
    """A record is a line; empty lines are skipped. `whole`: see `WHOLE`."""

    format: Format
    whole: int = WHOLE

    def columns(self, spark: SparkSession, first: Callable[[], Sequence[Entry]]) -> Columns:
        del first
        return self.format.columns(spark)

    def omissions(self, spark: SparkSession) -> Omissions | None:
        return decoding.omissions(self.format, spark)

    def read(
        self, spark: SparkSession, files: Sequence[Entry], columns: Columns, base: str
    ) -> DataFrame:
        from pyspark.sql import functions as F

        del columns
        parts = []
        small = [entry for entry in files if entry.size <= self.whole]
        big = [entry for entry in files if entry.size > self.whole]
        if small or not big:
            parts.append(self._numbered(spark, small, base))
        if big:
            found = _with_file(spark.read.format("text").load(literal_paths(big)))
            fine = F.lit(None).cast("string").alias(BROKEN)
            value = F.col("value").alias(VALUE)
            parts.append(found.select(value, *_OWN, _below(base).alias(AT), fine))
        frame = reduce(lambda a, b: a.unionAll(b), parts)
        written = F.trim(F.regexp_replace(VALUE, f"[{_BOM}\r]", "")) != ""
        return self.format.decode(spark, frame.where(written), _OWN)

    def _numbered(self, spark: SparkSession, files: Sequence[Entry], base: str) -> DataFrame:
        from pyspark.sql import functions as F

        if not files:
            empty = spark.range(0).select(F.lit(None).cast("string").alias("value"))
            found = empty.select(
                "value",
                F.lit(None).cast("string").alias("_file"),
                F.lit(None).cast("timestamp").alias("_modified"),
            )
        else:
            reader = spark.read.format("text").option("wholetext", "true")
            found = _with_file(reader.load(literal_paths(files)))
        # Splitting replaces what is not UTF-8.
        bad = (~F.is_valid_utf8("value")).alias(BROKEN)
        lines = F.posexplode(F.split("value", "\n")).alias(_LINE, VALUE)
        text = F.regexp_replace(VALUE, f"^{_BOM}|\r$", "")
        at = F.concat(_below(base), F.lit(":"), (F.col(_LINE) + 1).cast("string"))
        broken = F.when(F.col(BROKEN) & F.contains(VALUE, F.lit(_REPLACED)), F.lit(NOT_TEXT))
        split = found.select(*_OWN, bad, lines)
        return split.select(text.alias(VALUE), *_OWN, at.alias(AT), broken.alias(BROKEN))


@dataclass(frozen=True)
class CsvFiles:
    """Separated values. The names in a header must be the declared ones."""

    format: Csv
    header: bool
    multi_line: bool

    def columns(self, spark: SparkSession, first: Callable[[], Sequence[Entry]]) -> Columns:
        del first
        return self.format.columns(spark)

    def read(
        self, spark: SparkSession, files: Sequence[Entry], columns: Columns, base: str
    ) -> DataFrame:
        from pyspark.sql import functions as F

        del columns
        types = self.format.declared.types(spark)
        shape = decoding.with_corrupt(as_texts(types))
        options = {
            **self.format.reader(),
            "header": str(self.header).lower(),
            "enforceSchema": "false",
            "multiLine": str(self.multi_line).lower(),
        }
        reader = spark.read.format("csv").schema(shape).options(**options)
        found = _with_file(reader.load(literal_paths(files)))
        fields = [F.col(f"`{name}`").alias(name) for name in shape.names]
        frame = found.select(F.struct(*fields).alias(ROW), *_OWN, _below(base).alias(AT))
        plain = f"to_csv({struct((name, field(ROW, name)) for name in types.names)})"
        text = f"coalesce({field(ROW, CORRUPT)}, {plain})"
        # Spark's reader silently replaces what is not UTF-8.
        replaced = when(f"contains({text}, {literal(_REPLACED)})", literal(NOT_TEXT))
        return self.format.rows(frame, types, _OWN, text, [replaced])


@dataclass(frozen=True)
class Typed:
    """Parquet and Avro files, which carry their own columns. `schema`: of Avro."""

    kind: str
    declared: Declared
    schema: str
    place: Place

    def columns(self, spark: SparkSession, first: Callable[[], Sequence[Entry]]) -> Columns:
        if self.declared.columns or self.declared.schema:
            return self.declared.told(spark)
        if self.schema:
            types = avro.Schemas(self.schema, None, self.place).types(spark)
        else:
            files = first()
            if not files:
                raise StreamSqlError(
                    "CONFIG_INVALID",
                    "the columns of the files are not known: there is no file yet",
                    allowed="`columns` with `data_type`, or `schema`; or a first file",
                    place=self.place,
                )
            types = self._load(spark, files).schema
        return tuple((f.name, type_text(f.dataType)) for f in types)

    def read(
        self, spark: SparkSession, files: Sequence[Entry], columns: Columns, base: str
    ) -> DataFrame:
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        try:
            return self._records(spark, files, columns, base)
        except (PySparkException, Py4JError) as error:
            if len(files) == 1 or "[CANNOT_MERGE_" not in str(error):
                raise
        # A column has different types in these files: read each with its own.
        each = [self._records(spark, [entry], columns, base) for entry in files]
        return reduce(lambda a, b: a.unionAll(b), each)

    def _records(
        self, spark: SparkSession, files: Sequence[Entry], columns: Columns, base: str
    ) -> DataFrame:
        from pyspark.sql import functions as F

        if not files:
            kinds = [F.lit(None).cast(kind).alias(name) for name, kind in columns]
            return records(spark.range(0).select(*kinds), columns, F.lit(""), self.place)
        found = self._load(spark, files)
        at = _below(base)
        if self.kind == "parquet":
            found = found.withColumn(_LINE, F.col("_metadata.row_index") + 1)
            at = F.concat(at, F.lit(":"), F.col(_LINE).cast("string"))
        return records(_with_file(found), columns, at, self.place)

    def _load(self, spark: SparkSession, files: Sequence[Entry]) -> DataFrame:
        options = {"mergeSchema": "true"} if self.kind == "parquet" else {}
        if self.schema:
            options["avroSchema"] = self.schema
        return spark.read.format(self.kind).options(**options).load(literal_paths(files))


def reader_of(options: Options, known: Sequence[str]) -> Reader:
    """The reader for the files that a source declares; mistakes are recorded there."""
    kind = str(options.format or "")
    if kind == "parquet":
        return Typed(kind, decoding.declared_of(options, kind), "", options.place)
    if kind == "avro":
        path = options.text("schema_file", allowed="the path of a file with an Avro schema")
        schema = avro.text_of(options, "schema_file", path) if path else ""
        return Typed(kind, decoding.declared_of(options, kind), schema, options.place)
    form = format_of(options, known)
    if isinstance(form, Csv):
        header = options.flag("header", default=True)
        return CsvFiles(form, header, options.flag("multi_line", default=False))
    return Lines(form)


def _with_file(frame: DataFrame) -> DataFrame:
    """The frame with `_file` and `_modified`."""
    from pyspark.sql import functions as F

    # Spark escapes it as a URI, where a plus is a literal plus.
    path = F.url_decode(F.regexp_replace("_metadata.file_path", r"\+", "%2B"))
    plain = F.regexp_replace(path, "^file:/*", "/")
    modified = F.col("_metadata.file_modification_time")
    return frame.withColumns({"_file": plain, "_modified": modified})


def _below(base: str) -> Column:
    """The file's path relative to `base` if it lies below it; its name when it is `base`."""
    from pyspark.sql import functions as F

    file, alone = F.col("_file"), base.rstrip("/")
    shorter = F.substring("_file", len(base) + 1, 1 << 30)
    below = F.when(F.startswith("_file", F.lit(base)), shorter)
    return below.when(file == alone, F.lit(alone.rsplit("/", 1)[-1])).otherwise(file)
