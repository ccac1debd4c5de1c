"""Plain tables that are being staged, and what dead processes left of some."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path

from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.meta.client.protocol import StagedOwner, Sweep
from dbt_streamsql.meta.service.access.callers import Runner
from dbt_streamsql.meta.service.routes.bodies import Owner, Stage, StagedToken
from dbt_streamsql.meta.store.staged_tables import StagedRecord

router = APIRouter(prefix="/staged", tags=["staged tables"])

SweepId = Annotated[str, Path(pattern=r"^[0-9a-f]{32}$")]


@router.get("")
def records(by: Runner) -> list[StagedRecord]:
    """Everything that is recorded, of living and dead owners."""
    return by.store.staged.records()


@router.post("", status_code=201)
def record(by: Runner, body: Stage) -> StagedOwner:
    """Write down what is about to be staged; `owner` is empty before the first."""
    by.change(body.table)
    owner = by.service.stage(by.name, body.owner, body.token, body.table, body.body)
    return StagedOwner(owner=owner, heard_within=by.service.owner_seconds)


@router.post("/confirm")
def confirm(by: Runner, body: StagedToken) -> None:
    """META_CONFLICT when another process has cleaned this one up."""
    by.service.confirm(by.name, body.owner, body.token)


@router.post("/forget")
def forget(by: Runner, body: StagedToken) -> None:
    """Nothing of it is left to abort."""
    by.service.forget(by.name, body.owner, body.token)


@router.post("/heartbeat")
def heartbeat(by: Runner, body: Owner) -> None:
    """The owner lives; META_CONFLICT when it was taken for dead."""
    if by.service.ledger(by.name, body.owner) is None:
        raise StreamSqlError("META_CONFLICT", "the owner is considered dead", given=body.owner)


@router.post("/end")
def end(by: Runner, body: Owner) -> None:
    """The owner stages nothing any more; what it could not abort is an orphan now."""
    by.service.end_owner(by.name, body.owner)


@router.post("/sweeps", status_code=201)
def begin_sweep(by: Runner) -> Sweep:
    """The records of dead owners, held against every other process until the sweep ends."""
    sweep, records = by.service.begin_sweep(by.name)
    return Sweep(id=sweep, records=records, heard_within=by.service.owner_seconds)


@router.post("/sweeps/{sweep}/heartbeat")
def hear_sweep(by: Runner, sweep: SweepId) -> None:
    """The sweep goes on."""
    by.service.hear_sweep(by.name, sweep)


@router.delete("/sweeps/{sweep}")
def end_sweep(by: Runner, sweep: SweepId) -> None:
    """End it; harmless when it has ended already."""
    by.service.end_sweep(by.name, sweep)
