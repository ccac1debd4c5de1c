"""Revisions: a table and everything downstream goes back to an earlier barrier, or is corrected.
`runtime/revise/revision_plan.py` gives the rules."""

from __future__ import annotations

from dataclasses import replace

from dbt_streamsql.compiler.correction_statements import correction
from dbt_streamsql.engine.definitions import Definitions, options_of
from dbt_streamsql.engine.epochs import EpochControl
from dbt_streamsql.engine.reads.user_sql import expanded_to_store
from dbt_streamsql.errors import Place, StreamSqlError
from dbt_streamsql.meta import Job, TableVersion
from dbt_streamsql.meta.model.stored_definition import definition_of
from dbt_streamsql.plan.compiled import CompiledPlan
from dbt_streamsql.plan.definition.redefinition import SHADOW, Redefinition
from dbt_streamsql.quoting import TableName
from dbt_streamsql.runtime.core.epoch_state import Warehouse, log
from dbt_streamsql.runtime.core.storage_errors import translate_storage_errors
from dbt_streamsql.runtime.publish import root_correction
from dbt_streamsql.runtime.report import Report, reports_of
from dbt_streamsql.runtime.revise import revision_plan
from dbt_streamsql.runtime.revise.revision_plan import (
    Mode,
    Revision,
    RevisionPlan,
    Step,
)
from dbt_streamsql.state_ttl import state_ttl_of

Definition = tuple[Job, CompiledPlan, Redefinition | None]


class Revisions:
    """Plans and runs revisions; each is its own epoch."""

    def __init__(
        self, warehouse: Warehouse, definitions: Definitions, epochs: EpochControl
    ) -> None:
        self._warehouse = warehouse
        self._definitions = definitions
        self._epochs = epochs

    @translate_storage_errors
    def revise(
        self,
        name: str,
        *,
        to_barrier: int | None = None,
        sql: str = "",
        mode: Mode = "auto",
    ) -> Report:
        """Recompute a table and everything downstream from an earlier barrier, or corrected.

        `name`: a view, or a table that views read. `to_barrier`: the committed barrier to go back
        to; views then reapply the later changes, an outside table loses them. `sql`: a view's new
        query, or INSERT, UPDATE, DELETE and MERGE statements on an outside table. `mode`:
        incremental, full, or auto (full only where required). One barrier publishes everything.
        Errors: DEFINITION_MISSING, REVISION_IMPOSSIBLE, CONFIG_INVALID, META_CONFLICT.
        """
        with self._epochs.lock:
            versions = self._run(self._asked(name, to_barrier, sql, mode))
        barrier = self._warehouse.store.last_committed()
        return Report(barrier, reports_of(versions, barrier))

    def plan(
        self,
        name: str,
        *,
        to_barrier: int | None = None,
        sql: str = "",
        mode: Mode = "auto",
    ) -> RevisionPlan:
        """What `revise` would do; nothing is changed. Errors: those of `revise`."""
        return self._look(self._asked(name, to_barrier, sql, mode))[0]

    def _asked(self, name: str, to_barrier: int | None, sql: str, mode: Mode) -> Revision:
        if self._epochs.opened is not None:
            raise StreamSqlError(
                "REVISION_IMPOSSIBLE",
                "a revision needs its own epoch, but an epoch is open",
                hint="publish it or abort it first",
            )
        table = TableName.parse(name, self._warehouse.catalog)
        if sql and str(table) in self._warehouse.store.jobs():
            sql = expanded_to_store(self._warehouse.sessions.main, sql)
        return Revision(table, to_barrier, sql, mode)

    def _run(self, asked: Revision) -> list[TableVersion]:
        """Run a revision, as one barrier; returns the new versions of the views.

        On an error nothing is changed, except for an outside table that was already corrected:
        its views follow in the next run.
        """
        self._look(asked)  # before waiting for other runs
        epoch = self._epochs.new_epoch()
        try:
            # Only now can no other process change what it depends on.
            found, root, definition = self._look(asked)
            if root is not None:
                spark, store = self._warehouse.sessions.main, self._warehouse.store_id
                root_correction.correct(spark, asked.table, store, found.root, root)
            epoch.revise(found.replay, definition)
            versions = [epoch.state.done[view] for view in found.replay.views]
            revision_plan.check(found, versions)
            self._warehouse.store.note(epoch.state.fence, "revise", _audited(found))
        except BaseException:
            epoch.abort()
            raise
        epoch.publish()
        log.info("revised %s (%s views)", asked.table, len(versions))
        return versions

    def _look(self, asked: Revision) -> tuple[RevisionPlan, list[str] | None, Definition | None]:
        """What to do: the plan, an outside table's statements, a view's definition."""
        found = revision_plan.plan(self._warehouse, asked)
        current = self._warehouse.store.jobs().get(str(asked.table))
        if current is None:
            return found, self._statements(asked), None
        if not asked.sql:
            return found, None, None
        anew = self._definition(asked, current)
        return (
            replace(found, steps=(_redefined(found.steps[0], anew), *found.steps[1:])),
            None,
            anew,
        )

    def _statements(self, asked: Revision) -> list[str]:
        """The correction of an outside table, redirected to its write location."""
        at = root_correction.place(asked.table, self._warehouse.store_id)
        return correction(asked.sql, asked.table, at) if asked.sql else []

    def _definition(self, asked: Revision, current: Job) -> Definition:
        """The new definition of a view."""
        ttl = definition_of(current).state_ttl
        return self._definitions.define(
            *(current, current.table, asked.sql, current.refresh_mode, current.unique_id),
            options_of(current),
            state_ttl=state_ttl_of(ttl, asked.sql, Place(current.table)),
        )


def _redefined(step: Step, definition: Definition) -> Step:
    _, compiled, change = definition
    if step.mode == "full" or change is None:
        return step
    full = compiled.mode == "full" or change.verdict == SHADOW
    reason = f"{change.verdict}: {change.reason}"
    return replace(step, mode="full" if full else "incremental", reason=reason)


def _audited(found: RevisionPlan) -> dict[str, object]:
    """The revision, for the audit log."""
    asked = found.revision
    told = {"table": str(asked.table), "mode": asked.mode, "upto": found.upto}
    told |= {"to_barrier": found.barrier} if found.barrier else {}
    told |= {"sql": asked.sql} if asked.sql else {}
    return {**told, "views": list(found.replay.views)}


def lines_before(found: RevisionPlan) -> list[str]:
    """What a revision would do, as lines for people."""
    back = f"go back to barrier {found.barrier}, then " if found.barrier else ""
    lines = [f"{back}reapply changes up to barrier {found.upto}; nothing is changed yet"]
    for step in found.steps:
        rows = f"undone {step.undone:,}, reread {step.replayed:,}"
        lines.append(f"{step.table}: {step.mode}, {rows}{_because(step.reason)}")
    left = ", ".join(found.left_alone)
    return [*lines, f"not affected: {left}"] if left else lines


def lines_after(report: Report) -> list[str]:
    """What a revision did, as lines for people."""
    lines = [
        f"{of.table}: {of.mode}, +{of.rows_inserted:,} -{of.rows_deleted:,}{_because(of.reason)}"
        for of in report.tables.values()
    ]
    return [*lines, f"published as barrier {report.barrier}"]


def _because(reason: str) -> str:
    return f" ({reason})" if reason else ""
