"""What an epoch did, as the public API and dbt report it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from dbt_streamsql.meta import NOOP, Job, TableVersion
from dbt_streamsql.meta.inspect.history import LAST_FULL, OLDEST_CHANGE
from dbt_streamsql.meta.model.stored_definition import definition_of
from dbt_streamsql.runtime.changelog import changelog_table
from dbt_streamsql.runtime.deliver.deliver import Delivered


@dataclass(frozen=True)
class TableReport:
    """What one epoch did to one view.

    `mode` is noop, append, incremental or full; `reason` says why it was full. `definition` is ''
    when it is unchanged, else what happened to the rows (metadata-only, append a column,
    compatible state, shadow rebuild), and `reason` says why. Rows count an updated row as one
    deleted and one inserted. `jobs` are Spark jobs, `bytes_read` what they read of files (-1: not
    known), `reads` how often rows of each input were read: for its change, and to look rows up.
    `strategy` is how: fold, replace or rows from changes, compare when the query was
    recomputed and compared, full. `rows_read` are the changed rows of the inputs. The estimates
    are seconds of each way (None: it was not considered, or nothing is known of it),
    `last_full` those that the newest refresh in full took. `started_at` is when the job began
    (seconds since 1970). `delay` are the seconds from the commit of the
    oldest change of a root that it consumed until its end (None: none, or not known); the barrier
    is published after the last job. MetaService gives the delay until then.
    """

    table: str
    mode: str
    reason: str
    rows_inserted: int
    rows_deleted: int
    jobs: int
    seconds: float
    barrier: int
    strategy: str = ""
    rows_read: int = 0
    bytes_read: int = 0
    reads: Mapping[str, int] = field(default_factory=dict)
    estimated_incremental: float | None = None
    estimated_compare: float | None = None
    estimated_full: float | None = None
    last_full: float | None = None
    definition: str = ""
    started_at: float | None = None
    delay: float | None = None


_SHOWN = frozenset(
    (
        "strategy",
        "rows_read",
        "bytes_read",
        "reads",
        "estimated_incremental",
        "estimated_compare",
        "estimated_full",
        LAST_FULL,
        "definition",
    )
)


@dataclass(frozen=True)
class Report:
    """One epoch: its barrier (the last one when nothing changed) and its tables.

    `failed` are tables left out because of an error, `waiting` those left out because an input
    was, with the table that failed. There are none unless the epoch was to keep going. `sinks` are
    those that had something to deliver.
    """

    barrier: int
    tables: Mapping[str, TableReport]
    failed: Mapping[str, Exception] = field(default_factory=dict)
    waiting: Mapping[str, str] = field(default_factory=dict)
    sinks: Mapping[str, Delivered] = field(default_factory=dict)


def summary(report: Report) -> str:
    """One line about what changed, and what it has saved."""
    changed = [table for table in report.tables.values() if table.mode != NOOP]
    inserted = sum(table.rows_inserted for table in changed)
    deleted = sum(table.rows_deleted for table in changed)
    told = f"{len(changed)} of {len(report.tables)} tables changed, +{inserted} -{deleted} rows"
    if not changed:
        return told
    slowest = max(changed, key=lambda table: table.seconds)
    told += f"; the slowest was {slowest.table}, {slowest.seconds:.1f} s"
    kept = [table for table in changed if table.mode != "full" and table.last_full is not None]
    if kept:
        took = sum(table.seconds for table in kept)
        in_full = sum(table.last_full or 0.0 for table in kept)
        told += f"; {len(kept)} from changes in {took:.1f} s, last in full in {in_full:.1f} s"
    return told


def blame(errors: Mapping[str, Exception], jobs: Mapping[str, Job]) -> dict[str, str]:
    """For each view with an error, the one that failed: itself, or what it reads.

    A reader of a failed view has the same error object; but so do views that share the read of an
    input, and none of them waits for another.
    """

    def by(table: str) -> str:
        job = jobs.get(table)
        read = changelog_table.runs_first(job, jobs) if job is not None else []
        writers = [definition_of(jobs[source]).side_of for source in read if source in jobs]
        for source in (*read, *writers):
            if source != table and errors.get(source) is errors[table]:
                return by(source)
        return table

    return {table: by(table) for table in errors}


def reports_of(versions: Iterable[TableVersion], barrier: int) -> dict[str, TableReport]:
    """Reports by table; tables that did not change report `barrier`."""
    return {
        version.table: TableReport(
            version.table,
            version.mode,
            version.reason,
            version.rows_inserted,
            version.rows_deleted,
            version.jobs,
            version.seconds,
            version.barrier or barrier,
            started_at=version.started_at,
            delay=_delay(version),
            **{name: value for name, value in version.stats.items() if name in _SHOWN},
        )
        for version in versions
    }


def _delay(version: TableVersion) -> float | None:
    made = version.stats.get(OLDEST_CHANGE, {}).values()
    if not made or version.started_at is None or version.mode == NOOP:
        return None
    return version.started_at + version.seconds - float(min(made))
