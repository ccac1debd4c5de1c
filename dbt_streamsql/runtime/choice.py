"""Which way one view takes in one epoch, by what each is expected to cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import SparkSession

from dbt_streamsql.meta import Job, TableVersion
from dbt_streamsql.plan.compiled import CompiledPlan
from dbt_streamsql.plan.redefinition import FROM_STORED
from dbt_streamsql.plan.relational import CLOCK
from dbt_streamsql.plan.work import Work, of_program
from dbt_streamsql.runtime import upkeep
from dbt_streamsql.runtime.context import Open, Version
from dbt_streamsql.runtime.cost import WORTH, WORTH_TO_READERS, Estimate, estimate
from dbt_streamsql.runtime.ways import (
    CHANGES,
    COMPARE,
    View,
    Way,
    cheapest,
    expected_by_comparing,
    expected_from_changes,
)
from dbt_streamsql.storage.iceberg import delta
from dbt_streamsql.storage.iceberg.changes import Change
from dbt_streamsql.storage.iceberg.metadata import Metadata


@dataclass
class Choice:
    """The way of one view: from the changes of its inputs, unless `take` finds a cheaper one.

    `inputs` are the versions that it reads, `moves` what became of them since `previous`;
    `forgetful`: computed in full it would have again what it, or who reads it, has forgotten.
    """

    epoch: Open
    job: Job
    plan: CompiledPlan
    inputs: Mapping[str, Version]
    moves: Mapping[str, Change]
    previous: TableVersion | None
    forgetful: bool
    way: Way = field(default=CHANGES, init=False)
    _expected: dict[Way, float] = field(default_factory=dict, init=False)
    _seconds: dict[Way, float] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self._estimate = self._by_past_runs()

    def take(self, spark: SparkSession, stored: Metadata) -> str:
        """Choose; why all rows are to be written anew ('' when they are not)."""
        guarded = self.job.refresh_mode == "auto" and self.epoch.start(self.job.table) is None
        dear = self._estimate.dear if guarded and not self.forgetful else ""
        moved = {source for source, move in self.moves.items() if move.kind != "none"}
        clock = {CLOCK} & set(self.plan.tables)
        sizes = {source: at.meta.live_rows(at.snapshot) for source, at in self.inputs.items()}
        program = of_program(self.plan.steps, moved | clock, sizes)
        if not self._may_compare(spark, stored, program):
            return dear
        rows, text = stored.live_rows(stored.current), len(self.plan.full_sql)
        self._expected = {
            CHANGES: expected_from_changes(program, self._estimate.changed),
            COMPARE: expected_by_comparing(text, self._estimate.every, rows),
        }
        warehouse = self.epoch.warehouse
        self._seconds = warehouse.costs.seconds(self._view, self._expected)
        # Where the changes are dear a comparison is as cheap as a full refresh, and kinder to
        # readers.
        self.way = COMPARE if dear else cheapest(self._seconds, warehouse.tuning.comparing)
        return ""

    def learn(self, version: TableVersion) -> str:
        """The strategy of the run, of whose cost the next choices know."""
        full = version.mode == "full"
        # A comparison that came to too many rows for the driver is as dear as it was.
        if self._expected and (self.way is COMPARE or not full):
            expected = self._expected[self.way]
            self.epoch.warehouse.costs.learn(self._view, self.way, expected, version.seconds)
        if full:
            return "full"
        return COMPARE if self.way is COMPARE else self.plan.strategy

    def stats(self) -> dict[str, Any]:
        """What was expected, as it is kept with a version."""
        stats = self._estimate.stats()
        if self._seconds:
            by_changes = stats["estimated_incremental"] or round(self._seconds[CHANGES], 3)
            stats |= {
                "estimated_incremental": by_changes,
                "estimated_compare": round(self._seconds[COMPARE], 3),
            }
        return stats

    @property
    def is_read(self) -> bool:
        """Whether another view or a changelog takes up the changes of this one."""
        return self.epoch.readers(self.job.table) or bool(self.job.config.get("changelog"))

    @property
    def _view(self) -> View:
        return self.job.table, self.plan.fingerprint

    def _may_compare(self, spark: SparkSession, stored: Metadata, program: Work) -> bool:
        tuning = self.epoch.warehouse.tuning
        # Of big inputs the query reads no more than a program that computes old values from them.
        few = self._estimate.every <= max(tuning.compared_rows, program.rows)
        return (
            self.job.refresh_mode == "auto"
            and not (self.plan.is_wide or self.forgetful or self.epoch.replay)
            and few
            and stored.live_rows(stored.current) <= tuning.compared_rows
            and tuning.driver_rows > 0
            and stored.live_bytes(stored.current) <= tuning.compared_bytes
            and delta.supported(spark, stored)
            and not upkeep.scattered(stored, tuning)
        )

    def _by_past_runs(self) -> Estimate:
        """The rows of the changed inputs (at first: of all), and what they cost in past runs."""
        moved = [s for s, move in self.moves.items() if move.kind != "none"]
        rows = {s: at.meta.live_rows(at.snapshot) for s, at in self.inputs.items()}
        total, every = sum(rows[source] for source in moved), sum(rows.values())
        if self.previous is None:
            return Estimate(total, total, every=every)
        changed = sum(self.moves[s].rows for s in moved if self.moves[s].counted)
        guarded = self.epoch.warehouse.tuning.guarded_rows
        asked = total > guarded and self.job.refresh_mode == "auto"
        past = self.epoch.warehouse.store.history(self.job.table) if asked else []
        # What another query of that name took says nothing of this one, nor what its rows took.
        own = [
            run
            for run in past
            if run.stats.get("plan") == self.plan.fingerprint
            and run.stats.get("definition") not in FROM_STORED
        ]
        worth = WORTH_TO_READERS if self.is_read else WORTH
        return estimate(changed, total, every, own, worth, guarded)
