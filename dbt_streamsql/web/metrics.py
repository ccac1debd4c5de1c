"""`/metrics`: figures of a store as Prometheus reads them.

Gauges are of the newest barriers. Counters grow while the service runs: they begin with the
barriers that the store still had when it started, and go on with every one committed since.
"""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.registry import Collector

from dbt_streamsql.meta import MetaReader, TableVersion, history, overview
from dbt_streamsql.meta.leases import Leases
from dbt_streamsql.meta.overview import Status

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4
_PREFIX = "streamsql_"


class Exporter:
    """The figures of one store. Safe from several threads."""

    def __init__(self, reader: MetaReader, leases: Leases, clock: Callable[[], float]) -> None:
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(_StoreCollector(reader, leases, clock))

    def text(self) -> bytes:
        """The figures of now, in Prometheus' text format."""
        return generate_latest(self._registry)


class _StoreCollector(Collector):
    def __init__(self, reader: MetaReader, leases: Leases, clock: Callable[[], float]) -> None:
        self._reader, self._leases, self._clock = reader, leases, clock
        self._lock = threading.Lock()
        self._counted = 0
        self._versions: Counter[tuple[str, str]] = Counter()
        self._rows: Counter[tuple[str, str]] = Counter()
        self._seconds: defaultdict[str, float] = defaultdict(float)

    def collect(self) -> Iterator[Metric]:
        found = history.load(self._reader)
        told = overview.status(found, self._clock(), leases=len(self._leases.live()))
        yield from _of_barriers(told)
        yield from _of_tables(told)
        yield from self._totals()

    def _totals(self) -> list[Metric]:
        with self._lock:
            newest = self._reader.last_committed()
            if newest > self._counted:
                committed = {b.id for b in self._reader.recent(newest) if b.state == "COMMIT"}
                for version in self._reader.versions_between(self._counted + 1, newest):
                    if version.barrier in committed:
                        self._count(version)
                self._counted = newest
            versions = _counter("table_versions", "Versions of a table by mode.", "table", "mode")
            for (table, mode), number in sorted(self._versions.items()):
                versions.add_metric([table, mode], number)
            rows = _counter("table_rows", "Rows that its job has written.", "table", "change")
            for (table, change), number in sorted(self._rows.items()):
                rows.add_metric([table, change], number)
            seconds = _counter("table_job_seconds", "Seconds that its job has taken.", "table")
            for table, spent in sorted(self._seconds.items()):
                seconds.add_metric([table], spent)
        return [versions, rows, seconds]

    def _count(self, version: TableVersion) -> None:
        self._versions[version.table, version.mode] += 1
        self._rows[version.table, "inserted"] += version.rows_inserted
        self._rows[version.table, "deleted"] += version.rows_deleted
        self._seconds[version.table] += version.seconds


def _of_barriers(told: Status) -> Iterator[Metric]:
    yield _gauge("barrier_newest", "Number of the newest committed barrier.", told.barrier)
    if told.age is not None:
        yield _gauge("barrier_age_seconds", "Seconds since it was committed.", told.age)
    unfinished = len(told.unfinished)
    yield _gauge("barriers_unfinished", "Barriers at work, or left by a crash.", unfinished)
    yield _gauge("leases_live", "Readers that hold a barrier.", told.leases)


def _of_tables(told: Status) -> Iterator[Metric]:
    delays = _of("table_delay_seconds", "End-to-end delay of its newest change.")
    changed = _of("table_changed_timestamp_seconds", "When its newest change became visible.")
    behind = _of("table_behind", "1 when an input has a version that is not taken up yet.")
    slowest = _of("table_bottleneck", "1 for the slowest job of the newest critical path.")
    took = _of("table_newest_job_seconds", "Seconds that its newest change took.")
    for node in told.tables:
        if node.kind == "root":
            continue
        if node.delay is not None:
            delays.add_metric([node.table], node.delay)
        if node.changed_at is not None:
            changed.add_metric([node.table], node.changed_at)
        if node.seconds is not None:
            took.add_metric([node.table], node.seconds)
        behind.add_metric([node.table], node.state == "behind")
        slowest.add_metric([node.table], node.bottleneck)
    yield from (delays, changed, behind, slowest, took)


def _gauge(name: str, says: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(_PREFIX + name, says, value)


def _of(name: str, says: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(_PREFIX + name, says, labels=("table",))


def _counter(name: str, says: str, *labels: str) -> CounterMetricFamily:
    return CounterMetricFamily(_PREFIX + name, says, labels=labels)
