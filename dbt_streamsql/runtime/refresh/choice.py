"""Choose how to refresh one view in one epoch, by expected cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import SparkSession

from dbt_streamsql.meta import Job, TableVersion
from dbt_streamsql.meta.inspect.history import CHANGED
from dbt_streamsql.meta.model.stored_definition import definition_of
from dbt_streamsql.plan.algebra.relational import CLOCK
from dbt_streamsql.plan.compiled import CompiledPlan
from dbt_streamsql.plan.definition.redefinition import FROM_STORED
from dbt_streamsql.plan.program.work import Work, of_program
from dbt_streamsql.runtime.core.cost import (
    ESTIMATED,
    EXPECTED,
    FACTOR,
    LONG,
    MET,
    MOVED,
    WORTH,
    WORTH_TO_READERS,
    Estimate,
    by_past_runs,
    dear,
)
from dbt_streamsql.runtime.core.epoch_state import EpochState, Version
from dbt_streamsql.runtime.core.table_wear import scattered
from dbt_streamsql.runtime.core.ways import (
    CHANGES,
    COMPARE,
    FULL,
    Query,
    Run,
    View,
    Way,
    cheapest,
    expected_by_comparing,
    expected_from_changes,
    expected_in_full,
)
from dbt_streamsql.runtime.write.write_result import (
    Mismatch,
    TooLongRowsError,
    TooManyRowsError,
)
from dbt_streamsql.storage.iceberg.commits import row_delta
from dbt_streamsql.storage.iceberg.metadata import Metadata
from dbt_streamsql.storage.iceberg.scans.changes import Change
from dbt_streamsql.storage.locations import local_path

_SHARE = 0.25
"""Signed rows of a view's change, as a share of its rows, above which all rows are rewritten."""
_FEW = 10_000
"""A change of up to this many signed rows never rewrites all rows."""
_SEARCHED = {"positions": 0.17, "lineage": 2.0, "difference": 2.0}
"""The share of an input's rows that is read to find those that changed, by the kind of the change:
of deletes by position the marks of the files that have some, else both versions."""
_COUNTED = ("append", "positions")
"""Kinds of changes whose commits count the rows that changed; those of others count rewritten
rows too."""
_BATCH = 4096
"""Rows that Spark reads at once: those without a deleted row are passed over."""
_REWRITTEN = 0.01
"""Of the rows of copy-on-write commits, the share that changed; the rest lie in the same files."""


@dataclass
class Choice:
    """The way of one view: from the changes of its inputs, unless `take` finds a cheaper one.

    `inputs` are the versions that it reads, `moves` their changes since `previous`; `forgetful`: a
    full refresh would restore what the view, or one of its readers, has forgotten.
    """

    epoch: EpochState
    job: Job
    plan: CompiledPlan
    inputs: Mapping[str, Version]
    moves: Mapping[str, Change]
    previous: TableVersion | None
    forgetful: bool
    way: Way = field(default=CHANGES, init=False)
    _expected: dict[Way, float] = field(default_factory=dict, init=False)
    _seconds: dict[Way, float] = field(default_factory=dict, init=False)
    _exceeded: int | None = field(default=None, init=False)
    _long: int | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._estimate = self._sizes()
        self._long = self.previous.stats.get(LONG) if self.previous is not None else None

    def take(self, spark: SparkSession, stored: Metadata) -> str:
        """Choose; returns why all rows are to be rewritten ('' when they are not)."""
        changed = self._estimate.changed
        costs, tuning = self.epoch.warehouse.costs, self.epoch.warehouse.tuning
        moved, appends = self._moved, self._appends
        clock = {CLOCK} & set(self.plan.tables)
        rows = stored.live_rows(stored.current)
        held = rows <= tuning.held_rows
        at_hand = held and self._is_at_hand(stored)
        program = of_program(
            self.plan.steps, moved | clock, self._rows, at_hand=appends or at_hand
        )
        query, met = self._query, self._met
        # At most every row in its old and in its new version.
        shown = min((1.0 if met is None else met) * self._others, 2 * rows)
        looked_up = 0 if appends else rows
        searched = self._searched
        self._expected = {
            CHANGES: expected_from_changes(program, changed, shown, looked_up, searched)
        }
        if self._may_compare(spark, stored, program):
            expected = expected_by_comparing(query, rows, held=held, at_hand=at_hand)
            self._expected[COMPARE] = expected
        # How many rows of the view a change meets does not follow from the size of its input.
        weighed = self._estimate.total if met is None else self._estimate.every
        if self._may_be_full(weighed) and self._is_tried:
            self._expected[FULL] = expected_in_full(query, rows)
        if len(self._expected) == 1:
            return ""
        self._seconds = costs.seconds(self._view, self._expected, self._estimate.past)
        if COMPARE in self._seconds:
            short = {way: each for way, each in self._seconds.items() if way != FULL}
            self.way = cheapest(short, tuning.comparing)
        if FULL not in self._seconds or (self.way is COMPARE and not tuning.comparing):
            return ""
        return dear(self._seconds, changed, WORTH_TO_READERS if self.is_read else WORTH)

    def most(self, stored: Metadata) -> int:
        """The signed rows of its own change above which rewriting all rows is cheaper (0: it never
        is). Their number does not follow from the rows of the inputs' changes."""
        if not self._may_be_full(self._estimate.every):
            return 0
        rows = stored.live_rows(stored.current)
        few = min(_FEW, self.epoch.warehouse.tuning.driver_rows)
        return max(few, 2 * rows if self.is_read else int(_SHARE * rows))

    def learn(self, version: TableVersion) -> dict[str, Any]:
        """What later choices know about the run, stored with its version: the changed rows that it
        read, its strategy, and what was expected."""
        way: Way = FULL if version.mode == "full" else self.way
        expected, costs = self._expected.get(way), self.epoch.warehouse.costs
        unasked = expected is None
        if unasked and way is FULL and self.plan.mode == "incremental":
            expected = expected_in_full(self._query, version.rows_inserted)
        shown = version.rows_inserted + version.rows_deleted if way is not FULL else self._exceeded
        strategy = self.plan.strategy if way is CHANGES else way
        stats: dict[str, Any] = {"rows_read": self._estimate.changed, "strategy": strategy}
        met = self._met
        if shown is not None:
            met = costs.meets(self._view, self._moved, self._others, shown)
        elif met is not None:
            met = costs.fade(self._view, self._moved, met)
        if met is not None:
            stats |= {MET: round(met, 3), MOVED: sorted(self._moved)}
        if counted := self._counted:
            stats[CHANGED] = counted
        if expected is not None:
            factor = costs.measured(expected, version.seconds)
            stats |= {EXPECTED: round(expected, 3)}
            if factor is not None:
                stats |= {FACTOR: round(factor, 3)}
                # A view is built alone, and refreshed beside others: in this process, the two
                # are no measure of each other.
                if not unasked:
                    costs.learn(self._view, way, Run(expected, factor))
        if self._long is not None:
            stats[LONG] = self._long
        for each, seconds in self._seconds.items():
            stats[ESTIMATED[each]] = round(seconds, 3)
        return stats

    def give_up(self, found: Mismatch, stored: Metadata) -> None:
        """The chosen way has failed, for a reason that the next choice is to know."""
        if isinstance(found, TooManyRowsError):
            self._exceeded = found.most
        elif isinstance(found, TooLongRowsError):
            self._long = stored.live_rows(stored.current)

    @property
    def is_read(self) -> bool:
        """Whether another view or a changelog consumes the changes of this one."""
        return self.epoch.readers(self.job.table) or definition_of(self.job).changelog

    def _is_at_hand(self, stored: Metadata) -> bool:
        """Whether the stored rows take no statement: this process has them, or has their files."""
        known, at = self.epoch.warehouse.known_rows, stored.current
        if at is not None and known.get(self.job.table, (at, stored.schema_id)) is not None:
            return True
        return local_path(stored.location) is not None

    @property
    def _query(self) -> Query:
        stateful = sum(bool(each.states) for each in self.plan.operators)
        return Query(len(self.plan.full_sql), stateful, self._estimate.every)

    @property
    def _is_tried(self) -> bool:
        """Whether an estimate may give up the changes. Over big tables a wrong one is expensive,
        and the first run from changes shows what they cost: none knows how much of a table the
        keys of a change leave out."""
        big = self._estimate.total > self.epoch.warehouse.tuning.untried_rows
        if not big or 4 * self._estimate.changed > self._estimate.total:
            return True
        known = self.epoch.warehouse.costs.knows(self._view, CHANGES)
        return known or CHANGES in self._estimate.past

    @property
    def _met(self) -> float | None:
        """How many rows of the view changed for each changed row of the same inputs, in this
        process or before."""
        known = self.epoch.warehouse.costs.met(self._view, self._moved)
        return self._estimate.met if known is None else known

    def _may_be_full(self, rows: int) -> bool:
        """Whether cost may lead to a full refresh, over inputs of `rows` rows."""
        start = self.epoch.start(self.job.table)
        return self._guards(rows) and start is None and not self.forgetful

    def _guards(self, rows: int) -> bool:
        return self.job.refresh_mode == "auto" and rows > self.epoch.warehouse.tuning.guarded_rows

    @property
    def _rows(self) -> dict[str, int]:
        """The rows of each input."""
        return {source: at.meta.live_rows(at.snapshot) for source, at in self.inputs.items()}

    @property
    def _searched(self) -> list[float]:
        """The rows of each input that are read to find those that changed."""
        rows = self._rows
        return [
            _SEARCHED[move.kind] * _looked_at(move, rows[source])
            for source, move in self.moves.items()
            if move.kind in _SEARCHED
        ]

    @property
    def _appends(self) -> bool:
        """Whether the view only gains rows in this epoch."""
        operators, moves = self.plan.operators, self.moves.values()
        return (
            bool(operators)
            and all(each.changelog == "append" for each in operators)
            and all(move.kind == "none" or move.insert_only for move in moves)
        )

    @property
    def _moved(self) -> frozenset[str]:
        """The inputs that have changed."""
        return frozenset(source for source, move in self.moves.items() if move.kind != "none")

    @property
    def _counted(self) -> dict[str, int]:
        """The rows that changed in each input, where that is their number and not a bound."""
        if self.previous is None:
            return {}
        exact = {at: m for at, m in self.moves.items() if m.kind in _COUNTED and m.counted}
        return {source: move.rows for source, move in exact.items()}

    @property
    def _others(self) -> float:
        """About how many rows of the inputs have changed."""
        moves = (move for move in self.moves.values() if move.counted)
        return sum(move.rows * (_REWRITTEN if move.kind == "changelog" else 1.0) for move in moves)

    @property
    def _view(self) -> View:
        return self.job.table, self.plan.fingerprint

    def _may_compare(self, spark: SparkSession, stored: Metadata, program: Work) -> bool:
        tuning, rows = self.epoch.warehouse.tuning, stored.live_rows(stored.current)
        # Over big inputs the query reads no more than a program that computes old values from
        # them.
        few = self._estimate.every <= max(tuning.compared_rows, program.rows)
        return (
            self.job.refresh_mode == "auto"
            and not (self.plan.is_wide or self.forgetful or self.epoch.replay)
            and few
            and self._is_tried
            and rows <= tuning.compared_rows
            and (self._long is None or 2 * rows <= self._long)
            and tuning.driver_rows > 0
            and stored.live_bytes(stored.current) <= tuning.compared_bytes
            and row_delta.supported(spark, stored)
            and not scattered(stored, tuning)
        )

    def _sizes(self) -> Estimate:
        """The changed rows (at first: all), the rows of the changed inputs and of all, and past
        runs."""
        moved, rows = self._moved, self._rows
        total, every = sum(rows[source] for source in moved), sum(rows.values())
        if self.previous is None:
            return Estimate(total, total, every)
        changed = sum(self.moves[s].rows for s in moved if self.moves[s].counted)
        if not self._guards(every):
            return Estimate(changed, total, every)
        # Runs of another query of that name, or that derived its rows from stored ones, say
        # nothing here.
        own = [
            run
            for run in self.epoch.warehouse.store.history(self.job.table)
            if run.stats.get("plan") == self.plan.fingerprint
            and run.stats.get("definition") not in FROM_STORED
        ]
        met = next(
            (run.stats[MET] for run in own if run.stats.get(MOVED) == sorted(moved)),
            None,
        )
        return Estimate(changed, total, every, by_past_runs(own), met)


def _looked_at(move: Change, rows: int) -> float:
    """The rows of an input of `rows` rows among which those that changed are looked for."""
    if move.kind != "positions":
        return rows
    return min(move.marked * rows, float(_BATCH * move.rows))
