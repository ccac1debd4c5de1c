"""Carry out a revision: see `runtime/revision.py` for what it means."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from dbt_streamsql.compiler.correction import correction
from dbt_streamsql.definitions import Definitions, configuration_of
from dbt_streamsql.errors import Place
from dbt_streamsql.meta import Job, TableVersion
from dbt_streamsql.plan.compiled import CompiledPlan
from dbt_streamsql.plan.redefinition import SHADOW, Redefinition
from dbt_streamsql.runtime import correcting, revision
from dbt_streamsql.runtime.context import Warehouse, log
from dbt_streamsql.runtime.epoch import Epoch
from dbt_streamsql.runtime.report import Report
from dbt_streamsql.runtime.revision import Revision, RevisionPlan, Step
from dbt_streamsql.state_ttl import state_ttl_of

Definition = tuple[Job, CompiledPlan, Redefinition | None]


@dataclass(frozen=True)
class Revising:
    """Revisions of one engine; `begin` opens an epoch."""

    warehouse: Warehouse
    definitions: Definitions
    begin: Callable[[], Epoch]

    def plan(self, asked: Revision) -> RevisionPlan:
        """What a revision would do. Errors: see `run`."""
        return self._look(asked)[0]

    def run(self, asked: Revision) -> list[TableVersion]:
        """Do it, as one barrier; what became of the views.

        Errors: DEFINITION_MISSING, REVISION_IMPOSSIBLE, CONFIG_INVALID, META_CONFLICT, and those
        of an epoch. Nothing is changed then, but for an outside table that was corrected already:
        its views follow in the next run.
        """
        self._look(asked)  # before waiting for others
        epoch = self.begin()
        try:
            # Only now nobody else changes what it depends on.
            found, root, definition = self._look(asked)
            if root is not None:
                spark, store = self.warehouse.sessions.main, self.warehouse.store_id
                correcting.correct(spark, asked.table, store, found.root, root)
            epoch.revise(found.replay, definition)
            versions = [epoch.open.done[view] for view in found.replay.views]
            revision.check(found, versions)
            self.warehouse.store.note(epoch.open.fence, "revise", _told(found))
        except BaseException:
            epoch.abort()
            raise
        epoch.publish()
        log.info("revised %s (%s views)", asked.table, len(versions))
        return versions

    def _look(self, asked: Revision) -> tuple[RevisionPlan, list[str] | None, Definition | None]:
        """What is to be done: the plan, an outside table's statements, a view's definition."""
        found = revision.plan(self.warehouse, asked)
        current = self.warehouse.store.jobs().get(str(asked.table))
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
        """The correction of an outside table, turned to the place where it is written."""
        at = correcting.place(asked.table, self.warehouse.store_id)
        return correction(asked.sql, asked.table, at) if asked.sql else []

    def _definition(self, asked: Revision, current: Job) -> Definition:
        """The new definition of a view."""
        known = configuration_of(current)
        return self.definitions.define(
            *(current, current.table, asked.sql, current.refresh_mode, current.unique_id),
            known["properties"],
            changelog=known["changelog"],
            state_ttl=state_ttl_of(known["state_ttl"], asked.sql, Place(current.table)),
        )


def _redefined(step: Step, definition: Definition) -> Step:
    _, compiled, change = definition
    if step.mode == "full" or change is None:
        return step
    full = compiled.mode == "full" or change.verdict == SHADOW
    reason = f"{change.verdict}: {change.reason}"
    return replace(step, mode="full" if full else "incremental", reason=reason)


def _told(found: RevisionPlan) -> dict[str, object]:
    """The revision, for the audit log."""
    asked = found.revision
    told = {"table": str(asked.table), "mode": asked.mode, "upto": found.upto}
    told |= {"to_barrier": found.barrier} if found.barrier else {}
    told |= {"sql": asked.sql} if asked.sql else {}
    return {**told, "views": list(found.replay.views)}


def told_before(found: RevisionPlan) -> list[str]:
    """What a revision would do, as lines for people."""
    back = f"go back to barrier {found.barrier}, then " if found.barrier else ""
    lines = [f"{back}reapply changes up to barrier {found.upto}; nothing is changed yet"]
    for step in found.steps:
        rows = f"undone {step.undone:,}, reread {step.replayed:,}"
        lines.append(f"{step.table}: {step.mode}, {rows}{_because(step.reason)}")
    left = ", ".join(found.left_alone)
    return [*lines, f"not affected: {left}"] if left else lines


def told_after(report: Report) -> list[str]:
    """What a revision did, as lines for people."""
    lines = [
        f"{of.table}: {of.mode}, +{of.rows_inserted:,} -{of.rows_deleted:,}{_because(of.reason)}"
        for of in report.tables.values()
    ]
    return [*lines, f"published as barrier {report.barrier}"]


def _because(reason: str) -> str:
    return f" ({reason})" if reason else ""
