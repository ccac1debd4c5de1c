"""A Kafka topic: upserts by key, or Debezium change envelopes.

Spark's own writer sends the records, so a delivery that died midway is resent in full: each
change is in the topic at least once, and the newest record of a key is always correct.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dbt_streamsql.connectors.sinks.registry import SinkOptions
from dbt_streamsql.connectors.sinks.target import (
    AFTER,
    BEFORE,
    Batch,
    Layout,
    Mark,
    is_of_rows,
)
from dbt_streamsql.connectors.sources.kafka import kafka_brokers
from dbt_streamsql.errors import Place, StreamSqlError
from dbt_streamsql.quoting import quote

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

UPSERT, DEBEZIUM = "upsert", "debezium"
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_OURS = ("kafka.bootstrap.servers", "kafka.acks", "kafka.enable.idempotence")
_TIME = "yyyy-MM-dd'T'HH:mm:ss.SSSSSS"
_HEADERS = "array<struct<key:string,value:binary>>"
JSON = {
    "ignoreNullFields": "false",
    "timestampFormat": f"{_TIME}XXXXX",
    "timestampNTZFormat": _TIME,
}


@dataclass(frozen=True)
class KafkaTarget:
    """`writer` holds Spark's options. `tombstones`: a delete envelope is followed by a record
    without a value, which lets Kafka drop the key."""

    servers: str
    topic: str
    writer: Mapping[str, str] = field(repr=False)
    mode: str
    tombstones: bool
    place: Place
    hide: Callable[[str], str] = field(repr=False)
    is_keyed: bool = True
    keeps_mark: bool = False
    compares: bool = False

    @property
    def name(self) -> str:
        return f"topic {self.topic} at {self.servers}"

    @property
    def identity(self) -> str:
        return f"kafka {self.topic} {self.mode}"

    def check(
        self,
        spark: SparkSession,
        layout: Layout,  # noqa: ARG002 - every topic takes every record
        *,
        first: bool,  # noqa: ARG002 - a topic may have other records too
    ) -> None:
        with self._asking(), _connected(spark, self.writer, self._refusal) as brokers:
            # Spark's writer would wait for a minute, and a topic may be created by mistake.
            brokers.look([self.topic])

    @contextmanager
    def begin(
        self,
        spark: SparkSession,
        layout: Layout,
        *,
        replaces: bool,  # noqa: ARG002 - what is in a topic stays there
    ) -> Iterator[KafkaDelivery]:
        self.check(spark, layout, first=False)
        yield KafkaDelivery(self, layout)

    @contextmanager
    def _asking(self) -> Iterator[None]:
        from py4j.protocol import Py4JError

        try:
            yield
        except Py4JError as error:
            raise self._refusal(
                "STREAM_UNREACHABLE", "the brokers do not answer", str(error).splitlines()[0], ""
            ) from error

    def _refusal(self, code: str, what: str, given: str, hint: str) -> StreamSqlError:
        named = {"STREAM_UNREACHABLE": "SINK_UNREACHABLE", "TABLE_MISSING": "SINK_UNREACHABLE"}
        return StreamSqlError(
            named.get(code, code),
            f"{self.name}: {what}",
            given=self.hide(given),
            hint=hint,
            place=self.place,
        )


@contextmanager
def _connected(
    spark: SparkSession, writer: Mapping[str, str], refusal: kafka_brokers.Refusal
) -> Iterator[kafka_brokers.Brokers]:
    brokers = kafka_brokers.of(spark, writer, refusal)
    try:
        yield brokers
    finally:
        brokers.close()


@dataclass(frozen=True)
class KafkaDelivery:
    """One batch of records."""

    target: KafkaTarget
    layout: Layout
    mark: Mark | None = None

    def write(self, batch: Batch) -> None:
        """The records are visible from here on: Spark's Kafka writer has no staging."""
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        sent = self._records(batch).write.format("kafka").options(**self.target.writer)
        try:
            sent.option("topic", self.target.topic).save()
        except (PySparkException, Py4JError) as error:
            text = str(error)
            if is_of_rows(error) or "kafka" not in text.lower():
                raise
            raise StreamSqlError(
                "SINK_UNREACHABLE",
                f"{self.target.name}: Kafka did not accept the records",
                given=self.target.hide(text.strip().splitlines()[0]),
                hint="check the brokers, the topic and the user's rights; the delivery is retried",
                place=self.target.place,
            ) from None  # the cause may contain the password

    def publish(self, barrier: int) -> None:
        """Nothing is left to do."""

    def _records(self, batch: Batch) -> DataFrame:
        from pyspark.sql import functions as F

        value = self._envelope(batch) if self.target.mode == DEBEZIUM else self._upsert()
        key = F.to_json(F.struct(*(F.col(quote(name)) for name in self.layout.key)), JSON)
        header = F.struct(
            F.lit("streamsql.barrier").alias("key"),
            F.lit(str(batch.barrier)).cast("binary").alias("value"),
        )
        if self.target.mode == DEBEZIUM and self.target.tombstones:
            gone = F.array(value, F.lit(None).cast("string"))
            deleted = F.col(quote(AFTER)).isNull()
            value = F.explode(F.when(deleted, gone).otherwise(F.array(value)))
        headers = F.array(header).cast(_HEADERS)
        return batch.rows.select(key.alias("key"), value.alias("value"), headers.alias("headers"))

    def _upsert(self) -> Column:
        """The row; a deleted key has no value."""
        from pyspark.sql import functions as F

        return F.to_json(F.col(quote(AFTER)), JSON)

    def _envelope(self, batch: Batch) -> Column:
        from pyspark.sql import functions as F

        before, after = F.col(quote(BEFORE)), F.col(quote(AFTER))
        came = F.lit("r" if batch.whole else "c")
        operation = F.when(after.isNull(), "d").when(before.isNull(), came).otherwise("u")
        at = F.lit(int(batch.ended_at * 1000)).cast("bigint")
        # Barriers only increase, like positions in a database's log.
        lsn = F.lit(batch.barrier).cast("bigint")
        source = F.struct(
            F.lit("streamsql").alias("connector"),
            F.lit(self.layout.sink).alias("name"),
            F.lit(batch.table).alias("table"),
            at.alias("ts_ms"),
            lsn.alias("lsn"),
            F.lit(str(batch.whole).lower()).alias("snapshot"),
        )
        return F.to_json(
            F.struct(
                before.alias("before"),
                after.alias("after"),
                source.alias("source"),
                operation.alias("op"),
                at.alias("ts_ms"),
            ),
            JSON,
        )


def target(options: SinkOptions, mode: str, key: tuple[str, ...]) -> KafkaTarget:
    """Error: CONFIG_INVALID."""
    found = options.modes(mode, (UPSERT, DEBEZIUM), key)
    servers = options.text("bootstrap_servers", allowed="hosts and ports, such as kafka:9092")
    topic = options.text("topic")
    if topic and not _TOPIC.fullmatch(topic):
        options.wrong(f"`topic` is {topic!r}: letters, digits, `.`, `_` and `-`")
    if options.format not in (None, "json"):
        options.wrong(f"`format` is {options.format!r}: json")
    tombstones = options.flag("tombstones", default=True)
    given = options.prefixed("kafka.")
    for name in _OURS:
        if name in given:
            options.wrong(f"`{name}` cannot be set")
    options.check()
    # The records of a key must stay in order.
    sure = {"kafka.acks": "all", "kafka.enable.idempotence": "true"}
    writer = {"kafka.max.block.ms": "20000", **given, **sure, "kafka.bootstrap.servers": servers}
    return KafkaTarget(servers, topic, writer, found, tombstones, options.place, options.hide)
