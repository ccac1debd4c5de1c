"""Which parts of a view's query are stored, by what that costs and saves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dbt_streamsql.byte_sizes import as_text
from dbt_streamsql.engine.reads.spark_catalog import SparkCatalog
from dbt_streamsql.plan.definition.stored_part import State, StoredPart
from dbt_streamsql.plan.program.work import Work
from dbt_streamsql.quoting import TableName
from dbt_streamsql.runtime.core.cost import way_of
from dbt_streamsql.runtime.core.epoch_state import Warehouse
from dbt_streamsql.runtime.core.ways import FULL, expected_from_changes, expected_in_look_ups

_STATEMENTS = 3
"""What keeping groups takes: the change, the stored rows that it meets, the new rows."""
_GROUPS = 0.25
"""The rows of a part that is not stored yet, as a share of those that it reads."""

States = Mapping[str, str]
"""The state tables: part -> table."""


@dataclass(frozen=True)
class StateChoice:
    """The rule of `state: auto`. `budget`: the bytes of all state tables above which it stores no
    more parts."""

    warehouse: Warehouse
    known: SparkCatalog
    budget: int

    def chosen(
        self, parts: Sequence[StoredPart], state: State, there: States
    ) -> dict[str, StoredPart]:
        """The parts to store, by id, those that save most first."""
        ranked = sorted(parts, key=self._saved, reverse=True) if state == "auto" else parts
        return {part.id: part for part in ranked if not self.obstacle(part, state, there)}

    def obstacle(self, part: StoredPart, state: State, there: States) -> str:
        """Why a part is not stored ('': it is)."""
        if state != "auto":
            wanted = state == "all" or set(part.operators) & set(state)
            return "" if wanted and state != "none" else f"`state` is {_shown(state)}"
        times, own = self.warehouse.tuning.storing, there.get(part.id, "")
        if times < 0:
            return "nothing is stored by itself"
        # One that is there stays until it takes more than it saves.
        if self._saved(part) < (min(times, 1.0) if own else times) * self._kept(part, own):
            return "keeping the rows of this operator would take longer, or save little"
        others = sum(self._bytes(table) for table in there.values() if table != own)
        every = others + self._bytes(own)
        if every > self.budget:
            held = f"the state tables have {as_text(every)}"
            return f"{held}, and `state_budget` is {as_text(self.budget)}"
        return ""

    def said(self, part: StoredPart, state: State, there: States) -> str:
        """Whether a part is stored, and why, with rows, bytes and seconds."""
        read = f"{self._read(part):,} rows are read"
        if not part.stored:
            why = self.obstacle(part, state, there) or "a full refresh of the view stores it"
            seconds = f"about {self._saved(part):.1f} s of an epoch"
            return f"not stored: {read} for its old and new rows, {seconds}; {why}"
        stored, size = self._rows((part.stored,)), as_text(self._bytes(part.stored))
        took = f"{self._kept(part, part.stored):.1f} s"
        saves = f"saves about {self._saved(part):.1f} s of an epoch and takes {took}"
        return f"stored: {stored:,} rows, {size}, read by {self._readers(part)}; {saves}"

    def _readers(self, part: StoredPart) -> str:
        found = len(self.warehouse.store.readers(part.stored))
        return f"{found} views" if found != 1 else "this view"

    def _saved(self, part: StoredPart) -> float:
        """Seconds of an epoch in which the inputs would be read for the rows of touched keys,
        before and after it."""
        return 2 * expected_in_look_ups(self._read(part))

    def _kept(self, part: StoredPart, table: str) -> float:
        """Seconds of an epoch for the state table ('': there is none yet): those of its last one,
        or the expected ones."""
        last = self.warehouse.store.latest(table) if table else None
        if last is not None and way_of(last) != FULL:
            return last.seconds
        rows = self._rows((table,)) if table else int(_GROUPS * self._read(part))
        return expected_from_changes(Work(_STATEMENTS), 0, 0, rows)

    def _read(self, part: StoredPart) -> int:
        return self._rows(part.tables)

    def _rows(self, tables: Sequence[str]) -> int:
        return sum(self.known.rows(TableName.parse(table)) for table in tables)

    def _bytes(self, table: str) -> int:
        return self.known.bytes(TableName.parse(table)) if table else 0


def _shown(state: State) -> str:
    return state if isinstance(state, str) else str(list(state))
