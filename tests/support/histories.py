"""Stores with a history, made through the store's own calls and a clock that is set by hand.

orders ─> clean ─┬─> user_totals ─┬─> top_users
users ───────────┘                ├─> report
items ─> (clean) ──> item_revenue ┘
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from dbt_streamsql.meta import NOOP, Job, MetaStore, TableVersion
from dbt_streamsql.meta.model.freshness import Freshness

ORDERS, USERS, ITEMS = "lake.raw.orders", "lake.raw.users", "lake.raw.items"
CLEAN, TOTALS, REVENUE = "lake.shop.clean", "lake.shop.user_totals", "lake.shop.item_revenue"
TOP, REPORT = "lake.shop.top_users", "lake.shop.report"
SOURCES = {
    CLEAN: (ORDERS,),
    TOTALS: (CLEAN, USERS),
    REVENUE: (CLEAN, ITEMS),
    TOP: (TOTALS,),
    REPORT: (REVENUE, TOTALS),
}
SECONDS = {CLEAN: 1.2, TOTALS: 2.5, REVENUE: 6.0, TOP: 0.4, REPORT: 1.1}
"""What each job takes; `item_revenue` is the one to improve."""
STARTS = {CLEAN: 1.0, TOTALS: 2.3, REVENUE: 2.3, TOP: 4.9, REPORT: 8.8}
"""When it starts, counted from the start of its barrier."""


@dataclass
class Clock:
    """Seconds since 1970, moved by hand."""

    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


def job(table: str, sources: tuple[str, ...], sql: str = "") -> Job:
    """A definition with two columns and no plan."""
    columns = [{"name": "id", "type": "bigint"}, {"name": "amount", "type": "decimal(12,2)"}]
    text = sql or f"select id, sum(amount) as amount\nfrom {sources[0]}\ngroup by id"
    return Job(
        table, f"model.shop.{table.rpartition('.')[2]}", text, columns=columns, sources=sources
    )


class Story:
    """Writes barriers into a store, each `every` seconds after the one before."""

    def __init__(self, store: MetaStore, clock: Clock, every: float = 60.0) -> None:
        self.store, self.clock, self.every = store, clock, every
        self.fence = store.acquire()
        self.roots = dict.fromkeys((ORDERS, USERS, ITEMS), 1)
        self.committed = dict.fromkeys(self.roots, clock.now - 30)
        self.latest: dict[str, TableVersion] = {}
        self.start = clock.now

    def change(self, root: str, before: float = 12.0) -> None:
        """Somebody commits to a root, so many seconds before the next barrier starts."""
        self.roots[root] += 1
        self.committed[root] = self.start - before

    def barrier(
        self, noops: tuple[str, ...] = (), skip: tuple[str, ...] = (), *, finish: bool = True
    ) -> int:
        """Run every job that is not skipped and has news; publish unless `finish` is False."""
        store, fence = self.store, self.fence
        self.clock.now = self.start
        number = store.begin(fence, self.roots, self.committed).id
        first = not self.latest
        done: dict[str, TableVersion] = {}
        for table, sources in SOURCES.items():
            if table in skip:
                continue
            version = self._version(number, table, sources, first, table in noops)
            if version is None:
                continue
            if first:
                store.stage_job(fence, number, job(table, sources))
            self.clock.now = self.start + STARTS[table] + SECONDS[table]
            store.processed(fence, version)
            done[table] = self.latest[table] = version
        if finish:
            self.publish(number, done)
        self.start += self.every
        return number

    def _version(
        self, number: int, table: str, sources: tuple[str, ...], first: bool, noop: bool
    ) -> TableVersion | None:
        snapshots = {s: v.snapshot for s, v in self.latest.items()} | self.roots
        inputs: Mapping[str, int | None] = {source: snapshots[source] for source in sources}
        before = self.latest.get(table)
        if before is not None and before.inputs == inputs:
            return None
        moved = [
            s for s in sources if s in self.roots and before and before.inputs[s] != inputs[s]
        ]
        stats = {"oldest_change": {s: self.committed[s] - 5 for s in moved}} if moved else {}
        return TableVersion(
            number,
            table,
            snapshot=before.snapshot if noop and before else number * 100 + len(table),
            branch="" if noop or first else f"streamsql_{number}",
            created=first,
            mode=NOOP if noop else "full" if first else "incremental",
            reason="the table is built for the first time" if first else "",
            rows_inserted=0 if noop else 1000 if first else 12 + number,
            rows_deleted=0 if noop or first else number % 5,
            jobs=4,
            seconds=SECONDS[table] + (0.2 * (number % 3) if table == REVENUE else 0.0),
            started_at=self.start + STARTS[table],
            written_at=before.written_at if noop and before else None,
            inputs=inputs,
            stats=stats
            | {"rows_read": 20 + number, "strategy": "fold", "last_full": SECONDS[table]},
        )

    def promise(self, table: str, freshness: Freshness) -> None:
        """The model of a table sets limits, which take effect with a barrier of their own."""
        known = self.store.jobs()[table]
        number = self.store.begin(self.fence, {}).id
        config = {**known.config, "properties": freshness.as_properties()}
        self.store.stage_job(self.fence, number, replace(known, config=config))
        before = self.store.latest_all()[table]
        same = replace(before, barrier=number, state="PROCESSED", mode=NOOP, branch="")
        self.store.processed(self.fence, same)
        self.publish(number, {table: same})

    def publish(self, number: int, done: Mapping[str, TableVersion]) -> None:
        """Commit a barrier that has these versions."""
        store, fence = self.store, self.fence
        self.clock.now = self.start + 10.0
        store.precommit(fence, number)
        for table, version in done.items():
            self.clock.now += 0.1
            if version.mode != NOOP:
                store.written(fence, number, table)
        self.clock.now += 0.1
        store.commit(fence, number)
        # With the moments at which they became visible.
        self.latest = store.latest_all()


def tell(store: MetaStore, clock: Clock, barriers: int = 12, every: float = 60.0) -> Story:
    """A shop that was built and then ran for a while; `users` and `items` change less often."""
    story = Story(store, clock, every)
    story.barrier()
    for number in range(2, barriers + 1):
        story.change(ORDERS)
        if number % 3 == 0:
            story.change(USERS, 20.0)
        if number % 4 == 0:
            story.change(ITEMS, 45.0)
        story.barrier(noops=(TOP,) if number % 5 == 0 else ())
    return story
