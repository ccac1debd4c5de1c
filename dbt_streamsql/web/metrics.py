"""`/metrics`: figures of a store in Prometheus' format.

Gauges are about the newest barriers. Counters grow while the service runs: they start with the
barriers that the store still had when it started, and add every one committed since.
"""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.registry import Collector

from dbt_streamsql.meta import MetaStore
from dbt_streamsql.meta.inspect import history, overview
from dbt_streamsql.meta.inspect.overview import Status
from dbt_streamsql.web.access import Sees, everything

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4
_PREFIX = "streamsql_"


class Exporter:
    """The figures of one store. Thread-safe."""

    def __init__(self, store: MetaStore, clock: Callable[[], float]) -> None:
        self._store, self._clock = store, clock
        self._lock = threading.Lock()
        self._counted = 0
        self._versions: Counter[tuple[str, str]] = Counter()
        self._rows: Counter[tuple[str, str]] = Counter()
        self._seconds: defaultdict[str, float] = defaultdict(float)

    def text(self, sees: Sees = everything) -> bytes:
        """The current figures in Prometheus' text format, of the tables that a user sees."""
        registry = CollectorRegistry(auto_describe=False)
        registry.register(_Figures(self._collect(sees)))
        return generate_latest(registry)

    def _collect(self, sees: Sees) -> list[Metric]:
        found = history.load(self._store).seen_by(sees)
        live = len(self._store.leases.live())
        told = overview.status(found, self._clock(), leases=live)
        return [*_of_barriers(told), *_of_tables(told), *self._totals(sees)]

    def _totals(self, sees: Sees) -> list[Metric]:
        with self._lock:
            self._count_new()
            versions = _counter("table_versions", "Versions of a table, by mode.", "table", "mode")
            for (table, mode), number in sorted(self._versions.items()):
                if sees(table):
                    versions.add_metric([table, mode], number)
            rows = _counter("table_rows", "Rows written by the job of a table.", "table", "change")
            for (table, change), number in sorted(self._rows.items()):
                if sees(table):
                    rows.add_metric([table, change], number)
            seconds = _counter(
                "table_job_seconds", "Seconds taken by the job of a table.", "table"
            )
            for table, spent in sorted(self._seconds.items()):
                if sees(table):
                    seconds.add_metric([table], spent)
        return [versions, rows, seconds]

    def _count_new(self) -> None:
        newest = self._store.last_committed()
        if newest <= self._counted:
            return
        first = self._counted + 1
        known = self._store.recent(newest - self._counted, newest)
        committed = {barrier.id for barrier in known if barrier.state == "COMMIT"}
        for version in self._store.versions_between(first, newest):
            if version.barrier in committed:
                self._versions[version.table, version.mode] += 1
                self._rows[version.table, "inserted"] += version.rows_inserted
                self._rows[version.table, "deleted"] += version.rows_deleted
                self._seconds[version.table] += version.seconds
        self._counted = newest


class _Figures(Collector):
    """Figures that were already collected, in the library's form."""

    def __init__(self, figures: list[Metric]) -> None:
        self._figures = figures

    def collect(self) -> list[Metric]:
        return self._figures


def _of_barriers(told: Status) -> Iterator[Metric]:
    yield _gauge("barrier_newest", "Number of the newest committed barrier.", told.barrier)
    if told.age is not None:
        yield _gauge(
            "barrier_age_seconds", "Seconds since the newest barrier was committed.", told.age
        )
    unfinished = len(told.unfinished)
    yield _gauge("barriers_unfinished", "Barriers in progress, or left by a crash.", unfinished)
    yield _gauge("leases_live", "Readers that hold a barrier.", told.leases)


def _of_tables(told: Status) -> Iterator[Metric]:
    delays = _of("table_delay_seconds", "End-to-end delay of the newest change.")
    changed = _of("table_changed_timestamp_seconds", "When the newest change became visible.")
    behind = _of("table_behind", "1 if an input has a version that is not applied yet.")
    slowest = _of("table_bottleneck", "1 for the slowest job on the newest critical path.")
    took = _of("table_newest_job_seconds", "Seconds that the newest change took.")
    limits = GaugeMetricFamily(
        f"{_PREFIX}table_freshness_limit_seconds",
        "How old the newest change of a table may be, as its model says.",
        labels=("table", "limit"),
    )
    came = _of("table_event_time_seconds", "The event time up to which a table has its streams.")
    for node in told.tables:
        if node.kind in ("root", "stream"):
            continue
        if node.event_time is not None:
            came.add_metric([node.table], node.event_time)
        if node.freshness is not None:
            for limit, most in (
                ("warn", node.freshness.warn_after),
                ("error", node.freshness.error_after),
            ):
                if most is not None:
                    limits.add_metric([node.table, limit], most)
        if node.delay is not None:
            delays.add_metric([node.table], node.delay)
        if node.changed_at is not None:
            changed.add_metric([node.table], node.changed_at)
        if node.seconds is not None:
            took.add_metric([node.table], node.seconds)
        behind.add_metric([node.table], node.state in ("behind", "failing"))
        slowest.add_metric([node.table], node.bottleneck)
    yield from (delays, changed, behind, slowest, took, came, limits)


def _gauge(name: str, says: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(_PREFIX + name, says, value)


def _of(name: str, says: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(_PREFIX + name, says, labels=("table",))


def _counter(name: str, says: str, *labels: str) -> CounterMetricFamily:
    return CounterMetricFamily(_PREFIX + name, says, labels=labels)
