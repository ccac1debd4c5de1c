"""What Kafka brokers say about topics, through their own client in Spark's JVM or, over Spark
Connect, through small Spark queries.

Queries know less: not whether a topic was recreated with more records than before, nor when the
oldest new record was written. A gap is still found when the records are read.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING, Any, Protocol

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.storage.java import is_connect, java_class

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Partition = tuple[str, int]
Offsets = Mapping[Partition, int]
Refusal = Callable[[str, str, str, str], StreamSqlError]
"""Code, what is wrong, what was given, hint."""

PREFIX = "kafka."
_CLIENTS = "org.apache.kafka.clients"
_PATIENCE = "20000"
"""Timeout in milliseconds for brokers that do not answer."""
_NO_CONNECTOR = (
    "`connectors: [kafka]` in the profile; a Spark Connect server needs the connector installed"
)


@dataclass(frozen=True)
class Seen:
    """For each partition: the offset after the newest record, and the offset of the oldest, where
    known. `ids`: the topic IDs by name, where known."""

    latest: dict[Partition, int]
    earliest: dict[Partition, int] = field(default_factory=dict)
    ids: dict[str, str] = field(default_factory=dict)


class Brokers(Protocol):
    """A connection."""

    def look(self, topics: Sequence[str]) -> Seen:
        """The partitions of the topics. Errors: STREAM_UNREACHABLE, TABLE_MISSING."""

    def earliest(self, wanted: Sequence[Partition], seen: Seen) -> dict[Partition, int]:
        """Offsets of the oldest records, or of the next one where there is none."""

    def since(
        self, wanted: Sequence[Partition], moment: float, seen: Seen
    ) -> dict[Partition, int]:
        """Offsets of the first records at or after `moment` (seconds since 1970), likewise."""

    def oldest(self, begins: Offsets, ends: Offsets) -> float | None:
        """When the oldest of these records was written, seconds since 1970; None: unknown."""

    def close(self) -> None:
        """Close the connection."""


def of(spark: SparkSession, reader: Mapping[str, str], refusal: Refusal) -> Brokers:
    """The brokers for these options of Spark's reader."""
    return (Queries if without_jvm(spark) else Client)(spark, reader, refusal)


def without_jvm(spark: SparkSession) -> bool:
    """Whether Kafka's own client is unavailable."""
    return is_connect(spark)


class Client:
    """Kafka's own client, which comes with Spark's connector."""

    def __init__(self, spark: SparkSession, reader: Mapping[str, str], refusal: Refusal) -> None:
        self._spark = spark
        self._refusal = refusal
        self._given = {
            "default.api.timeout.ms": _PATIENCE,
            "request.timeout.ms": _PATIENCE,
            **{k.removeprefix(PREFIX): v for k, v in reader.items() if k.startswith(PREFIX)},
        }
        self._admin: Any = None

    def look(self, topics: Sequence[str]) -> Seen:
        names = self._java("java.util.ArrayList")()
        for topic in topics:
            names.add(topic)
        try:
            if self._admin is None:
                admins = self._java(f"{_CLIENTS}.admin.Admin")
                self._admin = admins.create(self._properties(self._given))
            told = self._admin.describeTopics(names).allTopicNames().get()
            there = {
                (topic, int(told.get(topic).partitions().get(at).partition()))
                for topic in topics
                for at in range(told.get(topic).partitions().size())
            }
            ids = {topic: str(told.get(topic).topicId().toString()) for topic in topics}
            specs = self._java(f"{_CLIENTS}.admin.OffsetSpec")
            wanted = sorted(there)
            return Seen(
                self._offsets(wanted, specs.latest()),
                self._offsets(wanted, specs.earliest()),
                ids,
            )
        except Py4JError as error:
            raise _refused(error, self._refusal) from error

    def earliest(self, wanted: Sequence[Partition], seen: Seen) -> dict[Partition, int]:
        return {at: seen.earliest[at] for at in wanted}

    def since(
        self, wanted: Sequence[Partition], moment: float, seen: Seen
    ) -> dict[Partition, int]:
        specs = self._java(f"{_CLIENTS}.admin.OffsetSpec")
        # Py4J would convert a small number to Java's `int`.
        number = self._java("java.lang.Long").valueOf(str(int(moment * 1000)))
        try:
            found = self._offsets(wanted, specs.forTimestamp(number))
        except Py4JError as error:
            raise _refused(error, self._refusal) from error
        return {at: offset if offset >= 0 else seen.latest[at] for at, offset in found.items()}

    def oldest(self, begins: Offsets, ends: Offsets) -> float | None:
        """Fetch the first new record of each partition."""
        wanted = [at for at, begin in begins.items() if begin < ends[at]]
        if not wanted:
            return None
        bytes_only = "org.apache.kafka.common.serialization.ByteArrayDeserializer"
        own = {
            "key.deserializer": bytes_only,
            "value.deserializer": bytes_only,
            "enable.auto.commit": "false",
            "auto.offset.reset": "none",
            "max.poll.records": "1",
            "max.partition.fetch.bytes": "65536",
        }
        written: list[int] = []
        try:
            consumers = self._java(f"{_CLIENTS}.consumer.KafkaConsumer")
            consumer = consumers(self._properties({**self._given, **own}))
            try:
                for at in wanted:
                    written += self._first(consumer, at, begins[at])
            finally:
                consumer.close()
        except Py4JError:
            return None  # it only shows how late the table is
        return min(written) / 1000 if written else None

    def close(self) -> None:
        if self._admin is not None:
            self._admin.close()
            self._admin = None

    def _first(self, consumer: Any, at: Partition, offset: int) -> list[int]:
        names = self._java("java.util.ArrayList")()
        partition = self._partition(at)
        names.add(partition)
        consumer.assign(names)
        consumer.seek(partition, offset)
        records = consumer.poll(self._java("java.time.Duration").ofMillis(1000))
        if records.isEmpty():
            return []
        return [int(records.iterator().next().timestamp())]

    def _offsets(self, wanted: Sequence[Partition], spec: Any) -> dict[Partition, int]:
        asked = self._java("java.util.HashMap")()
        partitions = {at: self._partition(at) for at in wanted}
        for partition in partitions.values():
            asked.put(partition, spec)
        levels = self._java("org.apache.kafka.common.IsolationLevel")
        level = self._given.get("isolation.level", "read_uncommitted").upper()
        options = self._java(f"{_CLIENTS}.admin.ListOffsetsOptions")(levels.valueOf(level))
        told = self._admin.listOffsets(asked, options).all().get()
        return {at: int(told.get(found).offset()) for at, found in partitions.items()}

    def _partition(self, at: Partition) -> Any:
        return self._java("org.apache.kafka.common.TopicPartition")(at[0], at[1])

    def _properties(self, given: Mapping[str, str]) -> Any:
        found = self._java("java.util.Properties")()
        for key, value in given.items():
            found.put(key, value)
        return found

    def _java(self, name: str) -> Any:
        return java_class(self._spark, name)


class Queries:
    """Spark queries, for a client without a JVM."""

    def __init__(self, spark: SparkSession, reader: Mapping[str, str], refusal: Refusal) -> None:
        self._spark = spark
        self._reader = reader
        self._refusal = refusal

    def look(self, topics: Sequence[str]) -> Seen:
        """A stream that starts at the end reports its position and reads nothing."""
        name = f"streamsql_{uuid.uuid4().hex}"
        options = {
            "kafka.default.api.timeout.ms": _PATIENCE,
            "kafka.request.timeout.ms": _PATIENCE,
            **self._reader,
            "subscribe": ",".join(topics),
            "startingOffsets": "latest",
        }
        try:
            stream = self._spark.readStream.format("kafka").options(**options).load()
            begun = stream.where("false").writeStream.format("noop").queryName(name)
            query = begun.trigger(availableNow=True).start()
            try:
                query.awaitTermination()
                told = query.lastProgress
            finally:
                query.stop()
        except PySparkException as error:
            raise _refused(error, self._refusal) from error
        found = _end(told.json) if told else {}
        missing = sorted(set(topics) - set(found))
        if missing:
            raise self._refusal("TABLE_MISSING", "no such topic", ", ".join(missing), "create it")
        return Seen({(t, int(p)): int(o) for t, of in found.items() for p, o in of.items()})

    def earliest(self, wanted: Sequence[Partition], seen: Seen) -> dict[Partition, int]:
        return self._firsts(wanted, seen, lambda at: {"startingOffsets": _of(at, -2)})

    def since(
        self, wanted: Sequence[Partition], moment: float, seen: Seen
    ) -> dict[Partition, int]:
        def begin(at: Partition) -> dict[str, str]:
            return {
                "startingOffsetsByTimestamp": _of(at, int(moment * 1000)),
                "startingOffsetsByTimestampStrategy": "latest",
            }

        return self._firsts(wanted, seen, begin)

    def oldest(self, begins: Offsets, ends: Offsets) -> float | None:
        del begins, ends
        return None

    def close(self) -> None:
        """Nothing is open."""

    def _firsts(
        self, wanted: Sequence[Partition], seen: Seen, begin: Callable[[Partition], dict[str, str]]
    ) -> dict[Partition, int]:
        """The offset of the first record read from there, per partition."""
        found = {at: seen.latest[at] for at in wanted}
        asked = [self._one(at, begin(at), seen.latest[at]) for at in wanted]
        if asked:
            try:
                rows = reduce(lambda a, b: a.unionAll(b), asked).collect()
            except PySparkException as error:
                raise _refused(error, self._refusal) from error
            found |= {(row[0], int(row[1])): int(row[2]) for row in rows}
        return found

    def _one(self, at: Partition, begin: Mapping[str, str], end: int) -> DataFrame:
        options = {
            **self._reader,
            **begin,
            "assign": json.dumps({at[0]: [at[1]]}),
            "endingOffsets": _of(at, end),
        }
        found = self._spark.read.format("kafka").options(**options).load()
        return found.limit(1).select("topic", "partition", "offset")


def _end(progress: str) -> dict[str, dict[str, int]]:
    """The end position in a stream's progress: a JSON object, or over Spark Connect its text."""
    (source,) = json.loads(progress)["sources"]
    end = source["endOffset"]
    found: dict[str, dict[str, int]] = json.loads(end) if isinstance(end, str) else end
    return found


def _of(at: Partition, value: int) -> str:
    return json.dumps({at[0]: {str(at[1]): value}})


def _refused(error: Exception, refusal: Refusal) -> StreamSqlError:
    """An error of Kafka or Spark as one of ours."""
    told = str(error)
    if "UnknownTopicOrPartition" in told:
        return refusal(
            "TABLE_MISSING", "no such topic", _cause(told), "create it, or correct `topic`"
        )
    if "does not exist in the JVM" in told or "find data source: kafka" in told:
        return refusal(
            "CONFIG_INVALID", "Spark has no Kafka connector", _cause(told), _NO_CONNECTOR
        )
    return refusal(
        "STREAM_UNREACHABLE",
        "the brokers do not answer",
        _cause(told),
        "check `bootstrap_servers`, the `kafka.security.…` and `kafka.sasl.…` options, and "
        "whether the brokers are running",
    )


def _cause(told: str) -> str:
    """The innermost cause in a Java stack trace, or its first line."""
    lines = [line.strip() for line in told.splitlines() if line.strip()]
    causes = [line for line in lines if line.startswith(("Caused by:", ": "))]
    return (causes[-1] if causes else lines[0])[:500]
