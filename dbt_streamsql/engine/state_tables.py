"""Stores parts of views' queries in state tables: views that no user defines, which all views with
an equal part read."""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import chain

from dbt_streamsql.compiler.state.stored_parts import parts_in
from dbt_streamsql.engine.definitions import Definitions
from dbt_streamsql.engine.reads.current import CurrentEpoch
from dbt_streamsql.engine.state_choice import Choosing, StateChoice
from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.meta import Job
from dbt_streamsql.meta.model.stored_definition import (
    StoredDefinition,
    definition_of,
    known_plan,
)
from dbt_streamsql.plan.compiled import CompiledPlan
from dbt_streamsql.plan.definition.stored_part import PlaceParts, State, StoredPart
from dbt_streamsql.plan.definition.table_key import TableKey
from dbt_streamsql.quoting import TableName
from dbt_streamsql.runtime.core.epoch_state import log
from dbt_streamsql.runtime.epoch import Epoch


class StateTables:
    """The state tables of a warehouse."""

    def __init__(
        self,
        current: CurrentEpoch,
        definitions: Definitions,
        choice: StateChoice,
    ) -> None:
        self._current = current
        self._definitions = definitions
        self._choice = choice
        self._defining: dict[str, str] = {}
        self._known_parts: dict[str, frozenset[str]] = {}
        self._lock = threading.Lock()

    def known(self, state: State) -> PlaceParts:
        """Where parts are stored already; nothing is defined."""

        def place(parts: Sequence[StoredPart]) -> dict[str, str]:
            jobs = self._current.jobs()
            there = by_part(jobs)
            stored = [part for part in parts if part.id in there]
            chosen = self._choosing(jobs, state).chosen(stored)
            return {part.id: there[part.id] for part in chosen}

        return place

    def of(self, job: Job) -> PlaceParts:
        """Where the parts are stored that a view has stored: what pays is not decided again."""
        plan = known_plan(job)
        if plan is None:
            return self.known(definition_of(job).state)
        ours = {part.id for part in plan.parts}

        def place(parts: Sequence[StoredPart]) -> dict[str, str]:
            there = by_part(self._current.jobs())
            return {part.id: there[part.id] for part in parts if part.id in ours & there.keys()}

        return place

    def defined(
        self,
        view: TableName,
        state: State,
        keys: tuple[TableKey, ...],
        epoch: Epoch,
    ) -> PlaceParts:
        """Where parts are stored, once those that are not have been defined in the epoch: in the
        schema of the view."""

        def place(parts: Sequence[StoredPart]) -> dict[str, str]:
            choosing = self._choosing(self._current.jobs(), state, str(view))
            return self._stored(choosing.chosen(parts), view, state, keys, epoch)

        return place

    def chosen(
        self, plan: CompiledPlan, state: State, keys: tuple[TableKey, ...]
    ) -> dict[int, bool]:
        """Whether an operator is stored with that config, for each that can be."""
        parts = parts_in(plan, keys)
        if not parts:
            return {}
        choosing = self._choosing(self._current.jobs(), state, plan.table)
        stored = {number for part in choosing.chosen(parts) for number in part.operators}
        return {number: number in stored for part in parts for number in part.operators}

    def summary(self, job: Job) -> str:
        """The state tables that a view reads, with their sizes and readers ('': none)."""
        plan = known_plan(job)
        parts = plan.parts if plan is not None else ()
        if not parts:
            return ""
        choosing = self._choosing(self._current.jobs(), definition_of(job).state)
        return "; ".join(f"{part.stored}: {choosing.size_of(part)}" for part in parts)

    def explained(self, job: Job, plan: CompiledPlan) -> CompiledPlan:
        """The plan, whose operators say which of them are stored, and why."""
        definition = definition_of(job)
        jobs, declined = self._current.jobs(), definition.declined
        choosing = self._choosing(jobs, definition.state, job.table, declined)
        stored = {part.id: part for part in plan.parts}
        said: dict[int, list[str]] = {}
        for part in parts_in(plan, definition.keys):
            if part.is_within(stored) or (part.keyed and part.id not in stored):
                continue
            text = choosing.said(stored.get(part.id, part))
            for number in part.operators:
                said.setdefault(number, []).append(text)
        operators = (
            replace(
                each, strategy="; ".join(filter(None, [each.strategy, *said.get(each.id, ())]))
            )
            for each in plan.operators
        )
        return replace(plan, operators=tuple(operators))

    def placed(self, job: Job, epoch: Epoch) -> tuple[PlaceParts, tuple[str, ...] | None]:
        """Where the parts of a view are stored in an epoch. Where that was decided again and comes
        out otherwise, also those that are not stored by themselves any more; else None."""
        decided = self._decided(job, epoch)
        if decided is None:
            return self.of(job), None
        chosen, declined = decided
        keys, view = definition_of(job).keys, TableName.parse(job.table)

        def place(parts: Sequence[StoredPart]) -> dict[str, str]:
            wanted = [part for part in parts if part.id in chosen]
            return self._stored(wanted, view, "auto", keys, epoch)

        return place, declined

    def _decided(self, job: Job, epoch: Epoch) -> tuple[set[str], tuple[str, ...]] | None:
        """The parts of a view that are stored from now on, and those that are not stored by
        themselves any more; None where nothing changes."""
        definition, plan = definition_of(job), known_plan(job)
        latest = epoch.state.latest.get(job.table)
        if definition.state != "auto" or epoch.state.replay is not None:
            return None
        if plan is None or latest is None or not self._choice.is_due(latest):
            return None
        parts, spent = parts_in(plan, definition.keys), self._choice.spent(job.table)
        if not parts or spent is None:
            return None
        stored = {part.id for part in plan.parts}
        choosing = self._choosing(
            *(epoch.state.jobs, "auto", job.table, definition.declined),
            # What its epochs take with state tables does not say what these save.
            math.inf if stored else spent,
        )
        chosen = {part.id for part in choosing.chosen(parts)}
        if chosen == stored:
            return None
        # A join comes back as soon as another view has it, too.
        dropped = {part.id for part in parts if part.id in stored - chosen and not part.join}
        return chosen, tuple(sorted({*definition.declined, *dropped}))

    def _choosing(
        self,
        jobs: Mapping[str, Job],
        state: State,
        view: str = "",
        declined: Collection[str] = (),
        spent: float = math.inf,
    ) -> Choosing:
        """The choice of what is stored of one view, among all `jobs`."""

        @cache
        def others() -> Counter[str]:
            found = (self._parts(job) for table, job in jobs.items() if table != view)
            return Counter(chain.from_iterable(found))

        there = by_part(jobs)
        return self._choice.among(there, state, lambda part: others()[part], declined, spent)

    def _parts(self, job: Job) -> frozenset[str]:
        """The parts of a view that may be stored."""
        known = self._known_parts.get(job.fingerprint)
        if known is None:
            plan = known_plan(job)
            parts = parts_in(plan) if plan is not None else ()
            known = self._known_parts[job.fingerprint] = frozenset(part.id for part in parts)
        return known if definition_of(job).state != "none" else frozenset()

    def _stored(
        self,
        parts: Sequence[StoredPart],
        view: TableName,
        state: State,
        keys: tuple[TableKey, ...],
        epoch: Epoch,
    ) -> dict[str, str]:
        """The state tables of some parts, in this epoch; not of those that cannot be kept."""
        found = ((part.id, self._ensured(part, view, state, keys, epoch)) for part in parts)
        return {part: table for part, table in found if table}

    def _ensured(
        self,
        part: StoredPart,
        view: TableName,
        state: State,
        keys: tuple[TableKey, ...],
        epoch: Epoch,
    ) -> str:
        """The state table of a part, in this epoch ('': it cannot be kept from changes)."""
        with self._lock:
            known = by_part(epoch.state.jobs).get(part.id)
            if not known:
                # Two views may define it at once, in different schemas.
                new = str(replace(view, table=part.table))
                table = self._defining.setdefault(part.id, new)
        if known:
            epoch.ensure(known)
            return known
        try:
            return self._defined(part, table, view, state, keys, epoch)
        finally:
            with self._lock:
                self._defining.pop(part.id, None)

    def _defined(
        self,
        part: StoredPart,
        table: str,
        view: TableName,
        state: State,
        keys: tuple[TableKey, ...],
        epoch: Epoch,
    ) -> str:
        # The numbers of operators are those of the view.
        inner: State = state if isinstance(state, str) else "none"
        try:
            job, plan, _ = self._definitions.define(
                *(None, table, part.sql, "auto", ""),
                StoredDefinition(state=inner, keys=keys, part=part.id),
                place=self.defined(view, inner, keys, epoch),
            )
        except StreamSqlError as error:
            if not error.code.startswith("SQL_"):
                raise
            # The user's query is valid: so its text, as it was written for the part, is not.
            log.warning("a part of %s is not stored: %s", view, error.message)
            return ""
        if plan.mode != "incremental":
            log.warning("a part of %s is not stored: %s", view, "; ".join(plan.reasons))
            return ""
        epoch.define(job, plan, None)
        return table


def by_part(jobs: Mapping[str, Job]) -> dict[str, str]:
    """The state table of each part that has one."""
    found = ((definition_of(job).part, table) for table, job in jobs.items())
    return {part: table for part, table in found if part}
