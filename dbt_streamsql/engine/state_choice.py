"""Which parts of a view's query are stored, by what that costs and saves."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from dbt_streamsql.byte_sizes import as_text
from dbt_streamsql.engine.reads.spark_catalog import SparkCatalog
from dbt_streamsql.meta import NOOP, TableVersion
from dbt_streamsql.plan.definition.stored_part import State, StoredPart
from dbt_streamsql.plan.program.work import Work
from dbt_streamsql.quoting import TableName
from dbt_streamsql.runtime.core.cost import way_of
from dbt_streamsql.runtime.core.epoch_state import Warehouse
from dbt_streamsql.runtime.core.ways import FULL, expected_from_changes, expected_in_look_ups

_STATEMENTS = 3
"""What keeping groups takes: the change, the stored rows that it meets, the new rows."""
_LAST = 8
"""Epochs of a state table that are looked at: the machine may have been busy in some."""
_GROUPS = 0.25
"""The rows of a part that is not stored yet, as a share of those that it reads."""


@dataclass(frozen=True)
class StateChoice:
    """The rule of `state: auto`. `budget`: the bytes of all state tables above which it stores no
    more parts."""

    warehouse: Warehouse
    known: SparkCatalog
    budget: int

    def among(
        self,
        there: Mapping[str, str],
        state: State,
        others: Callable[[str], int],
        declined: Collection[str] = (),
        spent: float = math.inf,
    ) -> Choosing:
        """The choice for one view with that config.

        `there`: part -> state table; `others`: how many other views have a part; `declined`:
        the parts that are not stored; `spent`: the seconds that the view's epochs take without
        them.
        """
        return Choosing(self, there, state, others, declined, spent)

    def is_due(self, latest: TableVersion) -> bool:
        """Whether what is stored of a view is decided again: not of all views at once."""
        every = self.warehouse.tuning.decided_again
        turn = zlib.crc32(latest.table.encode()) - latest.barrier
        return every > 0 and turn % every == 0

    def spent(self, table: str) -> float | None:
        """The seconds of a view's last epochs (None: it had nothing to do)."""
        took = [run.seconds for run in self.runs(table)]
        return median(took) if took else None

    def runs(self, table: str) -> list[TableVersion]:
        """The last runs that changed a table."""
        store = self.warehouse.store
        first = max(0, store.last_committed() - _LAST)
        runs = store.history(table, first)
        return [run for run in runs if run.barrier > first and run.mode != NOOP]


@dataclass(frozen=True)
class Choosing:
    """One choice: it looks at each table once."""

    rule: StateChoice
    there: Mapping[str, str]
    state: State
    others: Callable[[str], int]
    declined: Collection[str]
    spent: float
    _sizes: dict[str, tuple[int, int]] = field(default_factory=dict)

    def chosen(self, parts: Sequence[StoredPart]) -> list[StoredPart]:
        """The parts to store; not those that only stored joins need."""
        stored: list[StoredPart] = []
        for part in parts:
            if not part.is_within({each.id for each in stored}) and not self._obstacle(part):
                stored.append(part)
        return stored

    def said(self, part: StoredPart) -> str:
        """Whether a part is stored, and why, with rows, bytes and seconds."""
        saved = f"about {self._saved(part):.1f} s of an epoch"
        if not part.stored:
            why = self._obstacle(part) or "it is stored when that is decided again"
            if part.copy:
                return f"not copied: {self._read(part):,} rows; {why}"
            read = f"{self._read(part):,} rows are read for its old and new rows"
            return f"not stored: {read}, {saved}; {why}"
        took = f"saves {saved} and takes {self._kept(part, part.stored):.1f} s"
        return f"stored: {self.size_of(part)}; {took}"

    def size_of(self, part: StoredPart) -> str:
        """The rows, bytes and readers of a stored part."""
        rows, size = self._size(part.stored)
        return f"{rows:,} rows, {as_text(size)}, read by {self._readers(part)}"

    def _obstacle(self, part: StoredPart) -> str:
        """Why a part is not stored ('': it is)."""
        if part.copy and isinstance(self.state, str):
            return "a copy is stored only where `state` names its number"
        if self.state != "auto":
            wanted = self.state == "all" or set(part.operators) & set(self.state)
            if not wanted or self.state == "none":
                return f"`state` is {_shown(self.state)}"
            return "the keys of its sides are stored instead" if part.keyed else ""
        times, own = self.rule.warehouse.tuning.storing, self.there.get(part.id, "")
        if times < 0:
            return "nothing is stored by itself"
        if part.id in self.declined:
            return "its state table was dropped, which a full refresh of the view forgets"
        if part.join and not self.others(part.id):
            return "a join is stored by itself only where several views have it"
        if part.join and own and not self._is_beyond_budget(own):
            return ""
        # One that is there stays until it takes more than it saves.
        if self._saved(part) < (min(times, 1.0) if own else times) * self._kept(part, own):
            return "keeping the rows of this operator would take longer, or save little"
        if self._is_beyond_budget(own):
            held = f"the state tables have {as_text(self._held())}"
            return f"{held}, and `state_budget` is {as_text(self.rule.budget)}"
        return ""

    def _is_beyond_budget(self, own: str) -> bool:
        """Whether the budget has no room for a state table ('': for one more): the largest ones go
        first."""
        most = self._size(own) if own else None
        return self._held(most[1] if most else math.inf) > self.rule.budget

    def _held(self, most: float = math.inf) -> int:
        """The bytes of the state tables, of those that have no more bytes than `most`."""
        sizes = (self._size(table)[1] for table in self.there.values())
        return sum(size for size in sizes if size <= most)

    def _readers(self, part: StoredPart) -> str:
        found = len(self.rule.warehouse.store.readers(part.stored))
        return f"{found} views" if found != 1 else "this view"

    def _saved(self, part: StoredPart) -> float:
        """Seconds of an epoch in which the inputs would be read for the rows of touched keys,
        before and after it; for the keys of a join's side once, unless a declared key finds them;
        for a join once in each other view. No more than the view takes."""
        if part.join:
            return self.others(part.id) * expected_in_look_ups(self._read(part))
        times = (0 if self._is_found(part) else 1) if part.keys else 2
        return min(self.spent, times * expected_in_look_ups(self._read(part)))

    def _is_found(self, part: StoredPart) -> bool:
        """Whether declared keys are expected to find the keys in the changes: where these follow
        from changes of a parent, one that has never changed says nothing."""
        known = self.rule.known
        return part.declared and (not part.parent or known.changes(TableName.parse(part.parent)))

    def _kept(self, part: StoredPart, table: str) -> float:
        """Seconds of an epoch for the state table ('': there is none yet): those of the fastest of
        its last ones, or the expected ones."""
        runs = self.rule.runs(table) if table else []
        took = [run.seconds for run in runs if way_of(run) != FULL]
        if took:
            return min(took)
        rows = self._size(table)[0] if table else int(_GROUPS * self._read(part))
        return expected_from_changes(Work(_STATEMENTS), 0, 0, rows)

    def _read(self, part: StoredPart) -> int:
        return sum(self._size(table)[0] for table in part.tables)

    def _size(self, table: str) -> tuple[int, int]:
        if table not in self._sizes:
            self._sizes[table] = self.rule.known.size(TableName.parse(table))
        return self._sizes[table]


def _shown(state: State) -> str:
    return state if isinstance(state, str) else str(list(state))
