"""Barriers: what they hold, and their way from OPEN to COMMIT or ABORT."""

from __future__ import annotations

from fastapi import APIRouter

from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.meta.model.records import (
    Barrier,
    Job,
    Span,
    TableVersion,
)
from dbt_streamsql.meta.service.access.callers import Reader, Runner
from dbt_streamsql.meta.service.routes.bodies import (
    AtNumber,
    Definition,
    Fenced,
    HowMany,
    Inputs,
    Most,
    Number,
    OfTable,
    Retain,
    Seconds,
    Spans,
    Versions,
    Written,
)
from dbt_streamsql.meta.store.retention import Forgotten, Outlook, Retention

router = APIRouter(prefix="/barriers", tags=["barriers"])


@router.get("/newest")
def newest_barriers(by: Reader, most: Most) -> list[Barrier]:
    """The newest barriers in any state, newest first."""
    return by.store.newest_barriers(most)


@router.get("/recent")
def recent(by: Reader, newest: Most, upto: AtNumber | None = None) -> list[Barrier]:
    """The newest barriers in any state, up to one if given; oldest first."""
    return by.store.recent(newest, upto)


@router.get("/unfinished")
def unfinished(by: Reader) -> list[Barrier]:
    """Barriers in OPEN or PRECOMMIT; at most one."""
    return by.store.unfinished()


@router.get("/last-committed")
def last_committed(by: Reader) -> int:
    """The newest barrier in COMMIT; 0 before the first."""
    return by.store.last_committed()


@router.get("/kept-from")
def kept_from(by: Reader) -> int:
    """The oldest barrier that can be asked for."""
    return by.store.kept_from()


@router.get("/committed")
def committed_before(by: Reader, before: AtNumber, most: Most) -> list[int]:
    """Committed barriers below one that can still be asked for, newest first."""
    return by.store.committed_before(before, most)


@router.get("/old/outlook")
def outlook(by: Reader, seconds: Seconds, barriers: HowMany) -> Outlook:
    """Which barriers a retention would let go now."""
    return by.store.outlook(Retention(seconds, barriers))


@router.get("/old/surplus")
def surplus(by: Reader, barrier: AtNumber) -> dict[str, int]:
    """By table, how many versions were superseded at a barrier, or before it."""
    return by.seen_of(by.store.surplus(barrier))


@router.get("/{barrier}")
def barrier(by: Reader, barrier: Number) -> Barrier:
    """One barrier; META_MISSING when it never was or was forgotten."""
    found = by.store.barrier(barrier)
    if found is None:
        raise StreamSqlError("META_MISSING", f"there is no barrier {barrier}")
    return found


@router.get("/{barrier}/inputs")
def inputs(by: Reader, barrier: Number) -> dict[str, int | None]:
    """The pinned snapshot of each outside table."""
    return by.seen_of(by.store.inputs(barrier))


@router.get("/{barrier}/inputs-as-of")
def inputs_as_of(by: Reader, barrier: Number) -> dict[str, int | None]:
    """The newest pinned snapshot of each outside table at the barrier, or before it."""
    return by.seen_of(by.store.inputs_as_of(barrier))


@router.get("/{barrier}/spans")
def spans(by: Reader, barrier: Number) -> dict[str, Span]:
    """What each streaming table read of its stream."""
    return by.seen_of(by.store.spans(barrier))


@router.get("/{barrier}/input-times")
def input_times(by: Reader, barrier: Number) -> dict[str, float | None]:
    """When each pinned snapshot was committed, in seconds since 1970."""
    return by.seen_of(by.store.input_times(barrier))


@router.get("/{barrier}/versions")
def versions(by: Reader, barrier: Number) -> list[TableVersion]:
    """What the barrier holds; also of an open or an aborted one."""
    return [version for version in by.store.versions(barrier) if by.identity.sees(version.table)]


@router.get("/{barrier}/jobs")
def staged_jobs(by: Reader, barrier: Number) -> dict[str, Job]:
    """The definitions that become current when the barrier commits."""
    return by.seen_of(by.store.staged_jobs(barrier))


@router.post("", status_code=201)
def begin(by: Runner, body: Inputs) -> Barrier:
    """Open the next barrier with its pinned inputs."""
    return by.store.begin(body.fence, body.inputs, body.committed)


@router.post("/old/keep")
def keep_from(by: Runner, body: Retain) -> int:
    """Let earlier barriers go; the oldest one that can be read."""
    return by.store.keep_from(body.fence, body.retention)


@router.post("/old/forget")
def forget(by: Runner, body: Retain) -> Forgotten:
    """Remove the rows of barriers that have gone."""
    return by.store.forget(body.fence, body.retention)


@router.post("/{barrier}/inputs")
def add_inputs(by: Runner, barrier: Number, body: Inputs) -> None:
    """Pin more inputs, or pin an input again."""
    by.store.add_inputs(body.fence, barrier, body.inputs, body.committed)


@router.post("/{barrier}/spans")
def add_spans(by: Runner, barrier: Number, body: Spans) -> None:
    """Record what streaming tables are about to read."""
    by.change(*body.spans)
    by.store.add_spans(body.fence, barrier, body.spans)


@router.post("/{barrier}/jobs")
def stage_job(by: Runner, barrier: Number, body: Definition) -> None:
    """Register a definition that becomes current when the barrier commits."""
    by.change(body.job.table)
    by.store.stage_job(body.fence, barrier, body.job)


@router.post("/{barrier}/versions")
def processed_many(by: Runner, barrier: Number, body: Versions) -> None:
    """Record staged, or unchanged, versions."""
    by.change(*(version.table for version in body.versions))
    if any(v.barrier != barrier or v.state != "PROCESSED" for v in body.versions):
        raise StreamSqlError("META_REQUEST", f"versions must be PROCESSED at {barrier}")
    by.store.processed_many(body.fence, body.versions)


@router.post("/{barrier}/unstage")
def unstage(by: Runner, barrier: Number, body: OfTable) -> list[str]:
    """Take a table out of an open barrier; the paths of its change files."""
    by.change(body.table)
    return by.store.unstage(body.fence, barrier, body.table)


@router.post("/{barrier}/precommit")
def precommit(by: Runner, barrier: Number, body: Fenced) -> None:
    """The point of no return."""
    by.store.precommit(body.fence, barrier)


@router.post("/{barrier}/written")
def written(by: Runner, barrier: Number, body: Written) -> None:
    """The staged version of a table is visible now; also called by the recovery of a barrier."""
    by.store.written(body.fence, barrier, body.table, body.snapshot)


@router.post("/{barrier}/commit")
def commit(by: Runner, barrier: Number, body: Fenced) -> None:
    """Close the barrier: its versions are the latest."""
    by.store.commit(body.fence, barrier)


@router.post("/{barrier}/abort")
def abort(by: Runner, barrier: Number, body: Fenced) -> None:
    """Give an OPEN barrier up."""
    by.store.abort(body.fence, barrier)
