"""Whether the tables of declared foreign keys are read as they were at one moment.

A foreign key holds at each moment. But an epoch looks at one table after the other, and between
the two a writer may commit: then the versions that it reads may not fit together, and nothing may
be concluded from the key, neither in this epoch nor in the next, which starts from them.
"""

from __future__ import annotations

from collections.abc import Iterable

from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.meta import Job, TableVersion
from dbt_streamsql.meta.model.stored_definition import definition_of
from dbt_streamsql.quoting import TableName
from dbt_streamsql.runtime.core.epoch_state import ONE_MOMENT, EpochState, pin
from dbt_streamsql.storage.inputs import inputs
from dbt_streamsql.storage.inputs.file_tables import NoVersionsError

_TRIES = 5
"""How often the tables are looked at again while another process commits to them."""


def pin_together(epoch: EpochState, jobs: Iterable[Job]) -> None:
    """At the start of an epoch, pin the tables of foreign keys as they were at one moment."""
    tables = {table for job in jobs for table in _tables(epoch, job)}
    try:
        for _ in range(_TRIES):
            if not (moved := _moved(epoch, tables)):
                epoch.together |= tables
                return
            with epoch.lock:
                for table in moved:
                    epoch.pins.pop(table)
    except (NoVersionsError, StreamSqlError):
        pass  # the view that reads that table reports it
    epoch.torn |= tables


def check(epoch: EpochState, job: Job) -> None:
    """Before a view is refreshed: what a new definition reads may have been pinned for other views
    at different moments."""
    tables = _tables(epoch, job)
    if not tables <= epoch.together | epoch.torn and _moved(epoch, tables):
        epoch.torn |= tables


def is_one(epoch: EpochState, job: Job) -> bool:
    """Whether a view with declared keys reads their tables as they were at one moment."""
    return bool(definition_of(job).keys) and _tables(epoch, job).isdisjoint(epoch.torn)


def relies(epoch: EpochState, job: Job, previous: TableVersion) -> bool:
    """Whether this epoch of a view may conclude from declared keys what it need not read."""
    # The rows of an earlier barrier may have been made of versions of different moments.
    return epoch.replay is None and ONE_MOMENT in previous.stats and is_one(epoch, job)


def _tables(epoch: EpochState, job: Job) -> set[str]:
    """The tables of the foreign keys between outside inputs of a view."""
    ends = [{key.table, key.references} for key in definition_of(job).keys if key.references]
    if not ends:
        return set()
    outside = {source for source in job.sources if source not in epoch.jobs}
    return {table for tables in ends if tables <= outside for table in tables}


def _moved(epoch: EpochState, tables: Iterable[str]) -> list[str]:
    """Pin these tables; returns those that have changed since they were pinned."""
    pinned = {table: pin(epoch, table) for table in sorted(tables)}
    spark = epoch.warehouse.sessions.main
    now = {table: inputs.load(spark, TableName.parse(table)) for table in pinned}
    return [
        table
        for table, at in pinned.items()
        if (found := now[table]) is None or found.current != at.meta.current
    ]
