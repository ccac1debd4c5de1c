"""The right to write: one process at a time, for as long as it is heard of."""

from __future__ import annotations

from fastapi import APIRouter

from dbt_streamsql.meta.client.protocol import Grant
from dbt_streamsql.meta.model.records import Fence
from dbt_streamsql.meta.service.access.callers import Reader, Runner
from dbt_streamsql.meta.service.routes.bodies import Fenced, Note, Owner

router = APIRouter(prefix="/runner", tags=["runner"])


@router.get("")
def fence(by: Reader) -> Fence:
    """The newest fence; its owner is empty when it was given back."""
    return by.store.fence()


@router.get("/holder")
def holder(by: Runner) -> str:
    """Who holds the lock; empty when it is free, or not known."""
    return by.store.holder()


@router.post("", status_code=201)
def acquire(by: Runner, body: Owner) -> Grant:
    """Become the one runner, or WAREHOUSE_BUSY; ask again to wait."""
    fence = by.service.acquire(by.name, body.owner)
    return Grant(fence=fence, heard_within=by.service.runner_seconds)


@router.post("/heartbeat")
def heartbeat(by: Runner, body: Fenced) -> None:
    """The runner lives; META_CONFLICT when another may have succeeded it."""
    by.service.heartbeat(by.name, body.fence)


@router.post("/release")
def release(by: Runner, body: Fenced) -> None:
    """Give the right back; harmless when it was lost already."""
    by.service.release(by.name, body.fence)


@router.post("/let-go")
def let_go(by: Runner, body: Fenced) -> None:
    """Free the lock as a process does that dies: the next runner looks for what is unfinished."""
    by.service.let_go(by.name, body.fence)


@router.post("/newest-barrier")
def newest_barrier(by: Runner, body: Fenced) -> int:
    """The newest barrier there is; META_CONFLICT when the fence is not current."""
    return by.store.newest_barrier(body.fence)


@router.post("/note")
def note(by: Runner, body: Note) -> None:
    """Add a line to the audit log."""
    by.store.note(body.fence, body.action, body.detail)
