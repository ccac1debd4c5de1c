"""Kafka topics: the records between two offsets of every partition.

A position has `offsets` (for each topic and partition, the offset after the last record read),
`start` (where reading began) and `ids` (the topic IDs by name, where known). `start` is recorded
in place of Kafka's `earliest`, which moves on, so that the first barrier rereads the same after
a crash.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dbt_streamsql.connectors.options import LATEST, Options
from dbt_streamsql.connectors.sources.formats import decoding
from dbt_streamsql.connectors.sources.formats.registry import format_of
from dbt_streamsql.connectors.sources.kafka import kafka_brokers
from dbt_streamsql.connectors.sources.kafka.kafka_brokers import (
    Brokers,
    Offsets,
    Partition,
    Seen,
)
from dbt_streamsql.connectors.sources.source import (
    AT,
    End,
    Omissions,
    Position,
)
from dbt_streamsql.errors import Place, StreamSqlError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMATS = ("json", "avro", "csv", "debezium", "raw")
FAIL, SKIP = "fail", "skip"
OWN = (
    ("_key", "string"),
    ("_topic", "string"),
    ("_partition", "int"),
    ("_offset", "bigint"),
    ("_timestamp", "timestamp"),
    ("_headers", "array<struct<key:string,value:binary>>"),
    ("_tombstone", "boolean"),
)
log = logging.getLogger("dbt_streamsql")
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_OURS = ("kafka.bootstrap.servers", "kafka.group.id", "kafka.auto.offset.reset")
_BAD_KEY = "its key is not UTF-8; `key_type: binary` accepts any key"
_DEFAULTS = {
    # Skip records of aborted transactions.
    "kafka.isolation.level": "read_committed",
    # All requested records exist. A request for what follows, which a consumer sends ahead, would
    # block the next one on its connection for half a second.
    "kafka.fetch.max.wait.ms": "10",
}


@dataclass(frozen=True)
class Kafka:
    """The connector `kafka`. `start` is earliest, latest, or seconds since 1970."""

    servers: str
    topics: tuple[str, ...]
    reader: Mapping[str, str] = field(repr=False)
    start: str | float
    most: int | None
    on_lost: str
    binary_key: bool
    format: decoding.Format
    place: Place
    hide: Callable[[str], str] = field(repr=False)

    @property
    def name(self) -> str:
        return f"{self._topics} at {self.servers}"

    def columns(self, spark: SparkSession) -> tuple[tuple[str, str], ...]:
        return decoding.with_own(self.format.columns(spark), self._own, self.place)

    def omissions(self, spark: SparkSession) -> Omissions | None:
        # A skipped record may have changed the value.
        return decoding.omissions(self.format, spark) if self.on_lost == FAIL else None

    def end(self, spark: SparkSession, after: Position | None) -> End | None:
        """The newest offsets, or those within the bound.

        Errors: STREAM_UNREACHABLE, TABLE_MISSING for a topic that does not exist, STREAM_LOST
        when records after the position are gone or a topic was recreated.
        """
        before = _partitions(after["offsets"]) if after else {}
        ids = dict(after["ids"]) if after else {}
        brokers = self._brokers(spark)
        try:
            seen = brokers.look(self.topics)
            begins = self._begins(brokers, seen, before, ids)
            ends = _bounded(begins, seen.latest, self.most)
            oldest = brokers.oldest(begins, ends) if self._wants_oldest(after) else None
        finally:
            brokers.close()
        start = _partitions(after["start"]) if after else {}
        start |= {at: offset for at, offset in begins.items() if before.get(at) != offset}
        position = {
            "offsets": _nested(ends),
            "start": _nested(start),
            "ids": {**ids, **seen.ids},
        }
        if position == after:
            return None
        return End(position, sum(ends[at] - begins[at] for at in ends), oldest)

    def read(self, spark: SparkSession, after: Position | None, upto: Position) -> DataFrame:
        from pyspark.sql import functions as F

        spans = {
            at: (_first(at, end, after, upto), end)
            for at, end in _partitions(upto["offsets"]).items()
        }
        spans = {at: (first, end) for at, (first, end) in spans.items() if first < end}
        if spans:
            found = self._load(spark, spans)
        else:
            types = {**dict(OWN), "value": "binary", "_key": "binary"}
            empty = [F.lit(None).cast(kind).alias(name) for name, kind in types.items()]
            found = spark.range(0).select(*empty)
        key = F.col("_key") if self.binary_key else F.col("_key").cast("string")
        bad_key = F.lit(not self.binary_key) & ~F.is_valid_utf8(F.col("_key").cast("string"))
        frame = (
            found.withColumn("_tombstone", F.col("value").isNull())
            .withColumn(decoding.BROKEN, F.when(bad_key, F.lit(_BAD_KEY)))
            .withColumn("_key", key)
            .withColumn(AT, F.concat_ws(":", "_topic", "_partition", "_offset"))
            .withColumnRenamed("value", decoding.VALUE)
        )
        return self.format.decode(spark, frame, tuple(name for name, _ in self._own))

    def release(self, spark: SparkSession, upto: Position) -> None:
        """Kafka expires records by time and size, read or not."""

    @property
    def _own(self) -> tuple[tuple[str, str], ...]:
        return tuple((n, "binary" if n == "_key" and self.binary_key else k) for n, k in OWN)

    @property
    def _topics(self) -> str:
        return ("topic " if len(self.topics) == 1 else "topics ") + ", ".join(self.topics)

    def _wants_oldest(self, after: Position | None) -> bool:
        # Records from before the table do not show how late the table is.
        return after is not None

    def _brokers(self, spark: SparkSession) -> Brokers:
        return kafka_brokers.of(spark, self.reader, self._refusal)

    def _begins(
        self, brokers: Brokers, seen: Seen, before: Offsets, ids: dict[str, str]
    ) -> dict[Partition, int]:
        """Where reading begins or continues in each existing partition. Error: STREAM_LOST."""
        anew = {topic for topic, known in seen.ids.items() if ids.get(topic, known) != known}
        lost = {
            at: "its topic was dropped and recreated"
            if at[0] in anew
            else "it no longer exists"
            if at not in seen.latest
            else f"its newest record is {seen.latest[at] - 1} now"
            if offset > seen.latest[at]
            else f"records up to {seen.earliest[at] - 1} are gone"
            for at, offset in before.items()
            if at[0] in self.topics
            and (
                at[0] in anew or not seen.earliest.get(at, 0) <= offset <= seen.latest.get(at, -1)
            )
        }
        if lost:
            self._told(lost, before)
        known = {topic for topic, _ in before}
        new = [at for at in seen.latest if at not in before]
        first = [at for at in new if at[0] not in known]
        begins = {at: before[at] for at in seen.latest if at in before and at not in lost}
        begins |= brokers.earliest([at for at in seen.latest if at in lost or at in new], seen)
        if self.start == LATEST:
            begins |= {at: seen.latest[at] for at in first}
        elif not isinstance(self.start, str) and first:
            begins |= brokers.since(first, self.start, seen)
        return begins

    def _told(self, lost: Mapping[Partition, str], before: Offsets) -> None:
        """Refuse, or log what is skipped. Error: STREAM_LOST."""
        told = "; ".join(
            f"partition {at[1]} of {at[0]}, read up to {before[at] - 1}: {why}"
            for at, why in sorted(lost.items())
        )
        if self.on_lost == SKIP:
            log.warning(
                "%s: skipping lost records because of `on_lost: skip`: %s", self.name, told
            )
            return
        raise self._refusal(
            "STREAM_LOST",
            "records that were not read yet are gone",
            told,
            "`on_lost: skip` continues with the oldest remaining records; `--full-refresh` reads "
            "all of them again; keep records for longer than the time between two runs",
        )

    def _load(self, spark: SparkSession, spans: Mapping[Partition, tuple[int, int]]) -> DataFrame:
        from pyspark.sql import functions as F

        # Over Spark Connect, no check for lost records has run yet.
        strict = self.on_lost == FAIL or not kafka_brokers.without_jvm(spark)
        assigned: dict[str, list[int]] = {}
        for topic, partition in sorted(spans):
            assigned.setdefault(topic, []).append(partition)
        options = {
            **self.reader,
            "assign": json.dumps(assigned),
            "startingOffsets": json.dumps(_nested({at: span[0] for at, span in spans.items()})),
            "endingOffsets": json.dumps(_nested({at: span[1] for at, span in spans.items()})),
            "failOnDataLoss": str(strict).lower(),
            "includeHeaders": "true",
        }
        found = spark.read.format("kafka").options(**options).load()
        names = [name.removeprefix("_") for name, _ in OWN if name != "_tombstone"]
        return found.select("value", *(F.col(name).alias(f"_{name}") for name in names))

    def _refusal(self, code: str, what: str, given: str, hint: str) -> StreamSqlError:
        return StreamSqlError(
            code,
            f"{self._topics} at {self.servers}: {what}",
            given=self.hide(given),
            hint=hint,
            place=self.place,
        )


def source(options: Options) -> Kafka:
    """Error: CONFIG_INVALID."""
    servers = options.text("bootstrap_servers", allowed="hosts and ports, such as kafka:9092")
    one, several = (options.names(key, ()) for key in ("topic", "topics"))
    topics = one + several if one is not None and several is not None else ()
    if bool(one) == bool(several):
        options.wrong("one of `topic` and `topics` must be set")
    for topic in topics:
        if not _TOPIC.fullmatch(topic):
            options.wrong(f"`topic` is {topic!r}: letters, digits, `.`, `_` and `-`")
    start = options.start()
    most = options.integer("max_records_per_barrier", None)
    on_lost = options.choice("on_lost", (FAIL, SKIP), FAIL)
    key = options.choice("key_type", ("string", "binary"), "string")
    given = options.prefixed("kafka.")
    for name in _OURS:
        if name in given:
            options.wrong(f"`{name}` cannot be set; use `bootstrap_servers`")
    form = format_of(options, FORMATS)
    options.check()
    reader = {**_DEFAULTS, **given, "kafka.bootstrap.servers": servers}
    return Kafka(
        servers=servers,
        topics=tuple(sorted(set(topics))),
        reader=reader,
        start=start,
        most=most,
        on_lost=on_lost,
        binary_key=key == "binary",
        format=form,
        place=options.place,
        hide=options.hide,
    )


def _bounded(begins: Offsets, latest: Offsets, most: int | None) -> dict[Partition, int]:
    """Ends at most `most` records after the beginnings: each partition with new records gives one,
    and more in proportion to its backlog, so that none waits forever."""
    backlog = {at: latest[at] - begin for at, begin in begins.items() if begin < latest[at]}
    if most is None or sum(backlog.values()) <= most:
        return dict(latest)
    waiting = sorted(backlog)
    # With fewer to give than there are partitions, these take turns.
    turn = sum(begins.values()) % len(waiting)
    shares = dict.fromkeys((waiting[turn:] + waiting[:turn])[:most], 1)
    left = most - len(shares)
    rest = {at: backlog[at] - 1 for at in shares} if left else {}
    total = sum(rest.values())
    for at, count in rest.items():
        shares[at] += count * left // total
    left = most - sum(shares.values())
    for at in sorted(shares, key=lambda at: shares[at] - backlog[at])[:left]:
        shares[at] += 1
    return {at: begin + shares.get(at, 0) for at, begin in begins.items()}


def _first(at: Partition, end: int, after: Position | None, upto: Position) -> int:
    """The offset of a partition's first record after a position: where that one ended, unless
    reading has begun, or restarted, since."""
    starts = _partitions(upto["start"])
    before = _partitions(after["offsets"]) if after else {}
    topic = at[0]
    same = (
        after is not None
        and before.get(at, end + 1) <= end
        and _partitions(after["start"]).get(at) == starts.get(at)
        and after["ids"].get(topic) in (None, upto["ids"].get(topic))
    )
    return before[at] if same else starts[at]


def _partitions(offsets: Mapping[str, Mapping[str, int]]) -> dict[Partition, int]:
    return {
        (topic, int(partition)): offset
        for topic, found in offsets.items()
        for partition, offset in found.items()
    }


def _nested(offsets: Mapping[Partition, int]) -> dict[str, dict[str, int]]:
    """The JSON form of Spark's Kafka reader."""
    found: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        found.setdefault(topic, {})[str(partition)] = offset
    return found
