"""Tables: their versions, the jobs that write them, who reads whom, and their change files."""

from __future__ import annotations

from fastapi import APIRouter

from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.meta.client.protocol import Edge
from dbt_streamsql.meta.model.records import (
    ChangeFile,
    Job,
    Pin,
    TableVersion,
)
from dbt_streamsql.meta.service.access.callers import Reader, Runner
from dbt_streamsql.meta.service.routes.bodies import (
    AtNumber,
    Change,
    Fenced,
    Most,
    OfTable,
    Paths,
    Table,
    Upto,
)

router = APIRouter(tags=["tables"])


@router.get("/outside-tables")
def outside_tables(by: Reader) -> list[str]:
    """Every outside table that some barrier pinned."""
    return by.seen(sorted(by.store.outside_tables()))


@router.get("/versions")
def latest_all(by: Reader, barrier: AtNumber | None = None) -> dict[str, TableVersion]:
    """The newest committed version of every table, now or when a barrier committed."""
    return by.seen_of(by.store.latest_all(barrier))


@router.get("/pins")
def pins_between(by: Reader, first: AtNumber, last: AtNumber) -> dict[int, dict[str, Pin]]:
    """The pinned inputs of the barriers first to last, both included, by barrier and table."""
    found = by.store.pins_between(first, last)
    return {barrier: by.seen_of(pins) for barrier, pins in found.items()}


@router.get("/versions/between")
def versions_between(by: Reader, first: AtNumber, last: AtNumber) -> list[TableVersion]:
    """What the barriers first to last hold, both included."""
    return [v for v in by.store.versions_between(first, last) if by.identity.sees(v.table)]


@router.get("/versions/newest")
def newest_versions(by: Reader, most: Most) -> list[TableVersion]:
    """What the newest barriers hold, newest first."""
    return [v for v in by.store.newest_versions(most) if by.identity.sees(v.table)]


@router.get("/versions/latest")
def latest(by: Reader, table: Table) -> TableVersion:
    """The newest committed version of a table; META_MISSING when it has none."""
    by.see(table)
    found = by.store.latest(table)
    if found is None:
        raise StreamSqlError("META_MISSING", f"{table} has no committed version")
    return found


@router.get("/versions/history")
def history(by: Reader, table: Table, after: AtNumber = 0) -> list[TableVersion]:
    """The committed versions of a table, newest first, down to the one in force at `after`."""
    by.see(table)
    return by.store.history(table, after)


@router.get("/jobs")
def jobs(by: Reader) -> dict[str, Job]:
    """The current definitions."""
    return by.seen_of(by.store.jobs())


@router.get("/jobs/provisional")
def provisional_jobs(by: Reader) -> dict[str, Job]:
    """The definitions of the unfinished barrier."""
    return by.seen_of(by.store.provisional_jobs())


@router.post("/jobs/drop")
def drop_job(by: Runner, body: OfTable) -> None:
    """Forget the definition and the latest version of a table."""
    by.change(body.table)
    by.store.drop_job(body.fence, body.table)


@router.get("/topology")
def topology(by: Reader) -> list[Edge]:
    """What the current jobs read and write."""
    sees, edges = by.identity.sees, by.store.topology()
    return [Edge(source=s, sink=t) for s, t in edges if sees(s) and sees(t)]


@router.get("/topology/readers")
def readers(by: Reader, table: Table) -> list[str]:
    """The tables whose current job reads a table directly."""
    by.see(table)
    return by.seen(by.store.readers(table))


@router.get("/change-files")
def change_files(by: Reader, table: Table, after: AtNumber, upto: AtNumber) -> list[ChangeFile]:
    """A table's changes in (after, upto], oldest first."""
    by.see(table)
    return by.store.change_files(table, after, upto)


@router.get("/change-files/tables")
def tables_with_change_files(by: Reader) -> list[str]:
    """The tables that have any."""
    return by.seen(by.store.tables_with_change_files())


@router.get("/change-files/aborted")
def aborted_change_files(by: Reader) -> list[ChangeFile]:
    """Those of aborted barriers."""
    return [file for file in by.store.aborted_change_files() if by.identity.sees(file.table)]


@router.post("/change-files")
def add_change_file(by: Runner, body: Change) -> None:
    """List a change file of an open barrier."""
    by.change(body.change.table)
    by.store.add_change_file(body.fence, body.change)


@router.post("/change-files/forget")
def forget_change_files(by: Runner, body: Upto) -> list[str]:
    """Unlist a table's change files up to a barrier; their paths."""
    by.change(body.table)
    return by.store.forget_change_files(body.fence, body.table, body.barrier)


@router.post("/change-files/forget-aborted")
def forget_aborted_change_files(by: Runner, body: Fenced) -> list[str]:
    """Unlist the change files of aborted barriers; their paths."""
    return by.store.forget_aborted_change_files(body.fence)


@router.post("/change-files/forget-paths")
def forget_change_files_at(by: Runner, body: Paths) -> None:
    """Forget change files whose files are gone."""
    by.store.forget_change_files_at(body.fence, body.paths)
