"""The runner that works; others stand by."""

from __future__ import annotations

from fastapi import APIRouter

from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.meta.model.records import Leader
from dbt_streamsql.meta.service.access.callers import Reader, Runner
from dbt_streamsql.meta.service.routes.bodies import Lead, Resign

router = APIRouter(prefix="/leader", tags=["leader"])


@router.get("")
def leader(by: Reader) -> Leader:
    """Who leads; META_MISSING when there is no leader."""
    found = by.store.leaders.leader()
    if found is None:
        raise StreamSqlError("META_MISSING", "no runner is the leader")
    return found


@router.post("")
def lead(by: Runner, body: Lead) -> Leader:
    """Who leads now: the owner, for that long from now on, if there is no other leader."""
    return by.store.leaders.lead(body.owner, body.seconds)


@router.post("/resign")
def resign(by: Runner, body: Resign) -> None:
    """Let another one lead at once; harmless when another one does already."""
    by.store.leaders.resign(body.owner)
