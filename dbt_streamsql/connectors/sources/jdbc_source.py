"""A table or query of any database that Spark's JDBC reader supports.

`mode: incremental` reads the rows whose `column` is greater than before; a position has its Spark
type (`type`) and the greatest value (`value`, as text; microseconds since 1970 for a timestamp;
None: there was no row). `mode: snapshot` reads all rows; a position has a number (`n`) and a
digest of the answer to `changed_by` (`seen`). Database rows have no versions: rereading a
snapshot returns the current rows.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dbt_streamsql.connectors.options import Options
from dbt_streamsql.connectors.sources.rows import columns_of, records
from dbt_streamsql.connectors.sources.source import End, Position
from dbt_streamsql.errors import Place, StreamSqlError
from dbt_streamsql.quoting import quote
from dbt_streamsql.storage.columns import collected, type_text

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_OWN = (("_op", "string"),)
_ORDERED = re.compile(r"tinyint|smallint|int|bigint|decimal\(\d+,\d+\)|date|timestamp(_ntz)?")
_TIMES = ("timestamp", "timestamp_ntz")
# Every database accepts these; some refuse names that start with `_`.
_TOP, _NOW, _NULLS = "streamsql_top", "streamsql_now", "streamsql_nulls"
_ALIAS = "streamsql_rows"
_OTHER_QUOTES = {"jdbc:mysql:": "``", "jdbc:mariadb:": "``", "jdbc:sqlserver:": "[]"}
_PARTITIONING = ("partitionColumn", "lowerBound", "upperBound", "numPartitions")
_CONNECTING = ("driver", "user", "password", "fetchsize", "queryTimeout", "sessionInitStatement")


@dataclass(frozen=True)
class Jdbc:
    """The connector `jdbc`. `relation` can follow FROM in the database's own SQL."""

    name: str
    relation: str
    reader: Mapping[str, str] = field(repr=False)
    mode: str
    column: str | None
    lag: float | None
    start: str
    changed_by: str | None
    most: int | None
    declared: tuple[tuple[str, str], ...]
    place: Place
    hide: Callable[[str], str] = field(repr=False)

    @property
    def whole(self) -> bool:
        """Whether `read` returns all rows, not just new ones."""
        return self.mode == "snapshot"

    def columns(self, spark: SparkSession) -> tuple[tuple[str, str], ...]:
        with self._asking():
            schema = self._load(spark).schema
        found = tuple((f.name, type_text(f.dataType)) for f in schema)
        return columns_of(found, self.declared, _OWN, self.place)

    def end(self, spark: SparkSession, after: Position | None) -> End | None:
        """Errors: STREAM_UNREACHABLE; STREAM_CHANGED for a column that cannot be followed."""
        with self._asking():
            if self.whole:
                return self._snapshot(spark, after)
            return self._greatest(spark, after)

    def read(self, spark: SparkSession, after: Position | None, upto: Position) -> DataFrame:
        from pyspark.sql import functions as F

        with self._asking():
            rows = self._load(spark)
            if self.whole:
                at, op = F.lit(f"snapshot {upto['n']}"), "r"
            else:
                assert self.column is not None
                by = F.col(quote(self._spelled(rows)))
                rows = self._between(rows, after, upto)
                at, op = F.concat(F.lit(f"{self.column} "), by.cast("string")), "c"
            return records(rows.withColumn("_op", F.lit(op)), self.columns(spark), at, self.place)

    def release(self, spark: SparkSession, upto: Position) -> None:
        """Nothing to release."""

    def _snapshot(self, spark: SparkSession, after: Position | None) -> End | None:
        seen = None
        if after is not None and "n" not in after:
            raise self._refusal("it was read in a different mode before", "mode: snapshot")
        if self.changed_by is not None:
            rows = collected(self._load(spark, f"({self.changed_by}) {_ALIAS}"))
            told = json.dumps([list(row) for row in rows], default=str)
            seen = hashlib.sha256(told.encode()).hexdigest()
            if after is not None and after["seen"] == seen:
                return None
        return End({"n": after["n"] + 1 if after else 1, "seen": seen})

    def _greatest(self, spark: SparkSession, after: Position | None) -> End | None:
        from pyspark.sql import functions as F

        rows = self._load(spark)
        kind = self._kind(rows)
        if after is not None and after.get("type") != kind:
            before = after.get("type", "a different mode")
            raise self._refusal(
                "the type of the column has changed", f"{before} before, {kind} now"
            )
        by = self._quoted(self._spelled(rows))
        nulls = f"(SELECT count(*) FROM {self.relation} WHERE {by} IS NULL)"
        now = f", CURRENT_TIMESTAMP AS {_NOW}" if self.lag is not None else ""
        # The count first: SQLite's driver does not see NULL in a first column of decimals.
        asked = f"(SELECT {nulls} AS {_NULLS}, max({by}) AS {_TOP}{now} FROM {self.relation})"
        types = f"{_NULLS} bigint, {_TOP} {kind}"
        answer = self._load(spark, f"{asked} {_ALIAS}", customSchema=types)
        top = F.col(_TOP).cast(kind)
        if self.lag is not None:
            micros = F.unix_micros(F.col(_NOW).cast("timestamp")) - int(self.lag * 1_000_000)
            top = F.least(top, F.timestamp_micros(micros).cast(kind))
        written = _written(top, kind)
        absent, value = answer.select(F.col(_NULLS).cast("bigint"), written).collect()[0]
        if absent:
            raise self._refusal("rows have no value in `column`", f"{absent} rows")
        upto = {"value": value, "type": kind}
        if after is None and self.start == "latest":
            return End(upto, 0)
        if value is None or after == upto:
            return None
        if after is None and self.most is None:
            return End(upto)
        return self._bounded(rows, after, upto)

    def _bounded(self, rows: DataFrame, after: Position | None, upto: Position) -> End | None:
        """The same, up to about the bound: rows of equal value stay together."""
        from pyspark.sql import functions as F

        by = F.col(quote(self._spelled(rows)))
        new = self._between(rows, after, upto).select(by.alias(_TOP))
        if self.most is not None:
            new = new.orderBy(_TOP).limit(self.most)
        top = _written(F.max(_TOP), upto["type"])
        told = new.agg(top, F.count(F.lit(1))).collect()[0]
        if told[0] is None:
            return None
        return End({**upto, "value": told[0]}, told[1])

    def _between(self, rows: DataFrame, after: Position | None, upto: Position) -> DataFrame:
        """The rows of one range; Spark pushes the comparison down to the database."""
        from pyspark.sql import functions as F

        by = F.col(quote(self._spelled(rows)))
        if upto["value"] is None or (after is None and self.start == "latest"):
            return rows.filter(F.lit(False))
        if after is None or after["value"] is None:
            return rows.filter(by <= _value(upto))
        return rows.filter((by > _value(after)) & (by <= _value(upto)))

    def _kind(self, rows: DataFrame) -> str:
        kind = type_text(rows.schema[self._spelled(rows)].dataType)
        if not _ORDERED.fullmatch(kind):
            raise self._refusal(
                "new rows cannot be found by a column of this type", f"{self.column} {kind}"
            )
        if self.lag is not None and kind not in _TIMES:
            raise self._refusal(
                "`lag` is a length of time, and `column` is not a time", f"{self.column} {kind}"
            )
        return kind

    def _spelled(self, rows: DataFrame) -> str:
        found = [f.name for f in rows.schema if f.name == self.column] or [
            f.name for f in rows.schema if f.name.lower() == str(self.column).lower()
        ]
        if not found:
            raise self._refusal("there is no such column", str(self.column))
        return found[0]

    def _quoted(self, name: str) -> str:
        quotes = next((q for p, q in _OTHER_QUOTES.items() if self._url.startswith(p)), '""')
        return quotes[0] + name.replace(quotes[1], quotes[1] * 2) + quotes[1]

    @property
    def _url(self) -> str:
        return self.reader["url"]

    def _load(self, spark: SparkSession, relation: str | None = None, **more: str) -> DataFrame:
        options = {**self.reader, **more}
        if relation is not None:  # one row, not read in partitions
            for key in _PARTITIONING:
                options.pop(key, None)
        options["dbtable"] = relation or self.relation
        return spark.read.format("jdbc").options(**options).load()

    def _refusal(self, message: str, given: str) -> StreamSqlError:
        return StreamSqlError(
            "STREAM_CHANGED",
            f"{self.name}: {message}",
            given=given,
            allowed="a column without NULLs, of whole numbers, decimals, dates or timestamps, "
            "that is greater in every new row",
            hint="choose a different `column`, or `mode: snapshot`; `--full-refresh` starts again",
            place=self.place,
        )

    @contextmanager
    def _asking(self) -> Iterator[None]:
        from py4j.protocol import Py4JJavaError
        from pyspark.errors import PySparkException

        try:
            yield
        except (PySparkException, Py4JJavaError) as error:
            text = str(getattr(error, "java_exception", None) or error)
            raise StreamSqlError(
                "STREAM_UNREACHABLE",
                f"{self.name} cannot be read",
                given=self.hide((text.strip() or type(error).__name__).splitlines()[0]),
                hint="check the address, the user, the name of the table, and that the jar of "
                "the database's driver is in `spark.driver.extraClassPath`",
                place=self.place,
            ) from None  # the cause may contain the password


def source(options: Options) -> Jdbc:
    """Error: CONFIG_INVALID."""
    url = options.text("url", allowed="a JDBC address such as jdbc:postgresql://host/shop")
    table, query = options.text("table", None), options.text("query", None)
    if (table is None) == (query is None):
        options.wrong("exactly one of `table` and `query` must be set")
    mode = options.choice("mode", ("incremental", "snapshot"), "incremental")
    column, lag = options.text("column", None), options.seconds("lag", None)
    changed_by = options.text("changed_by", None)
    start = options.choice("start", ("earliest", "latest"), "earliest")
    if mode == "incremental" and column is None:
        options.wrong("`mode: incremental` needs a `column` that is greater in every new row")
    if mode == "incremental" and changed_by is not None:
        options.wrong("`changed_by` belongs to `mode: snapshot`")
    if mode == "snapshot" and (column or lag or start == "latest"):
        options.wrong("`column`, `lag` and `start` belong to `mode: incremental`")
    most = options.integer("max_records_per_barrier", None)
    if mode == "snapshot" and most:
        options.wrong("`max_records_per_barrier` belongs to `mode: incremental`")
    reader = {
        key: value
        for key in (*_CONNECTING, *_PARTITIONING)
        if (value := options.text(key, None)) is not None
    }
    if url is not None and not url.startswith("jdbc:"):
        options.wrong("`url` must start with jdbc:")
    options.check()
    if url.startswith("jdbc:postgresql:"):
        # `timestamp` has no time zone there.
        reader.setdefault("preferTimestampNTZ", "true")
    relation = table if table is not None else f"({query}) {_ALIAS}"
    shown = re.split(r"[?;]", options.hide(url))[0]
    return Jdbc(
        f"table {table or '(query)'} at {shown}",
        relation,
        {**reader, "url": url},
        mode,
        column,
        lag,
        start,
        changed_by,
        most,
        options.columns,
        options.place,
        options.hide,
    )


def _written(value: Column, kind: str) -> Column:
    """A value as stored in its position: exact, and the same in all time zones."""
    from pyspark.sql import functions as F

    return (F.unix_micros(value) if kind == "timestamp" else value).cast("string")


def _value(position: Position) -> Column:
    """A position's value: a literal, which Spark passes to the database quoted."""
    from pyspark.sql import functions as F

    if position["type"] == "timestamp":
        return F.timestamp_micros(F.lit(int(position["value"])))
    return F.lit(str(position["value"])).cast(position["type"])
