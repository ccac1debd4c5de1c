"""Sinks: what is delivered of maintained tables to systems outside, and how far."""

from __future__ import annotations

from fastapi import APIRouter

from dbt_streamsql.meta.model.records import Sink
from dbt_streamsql.meta.service.access.callers import Reader, Runner
from dbt_streamsql.meta.service.routes.bodies import Delivering, OfSink

router = APIRouter(prefix="/sinks", tags=["sinks"])


@router.get("")
def sinks(by: Reader) -> list[Sink]:
    """Those of tables that the caller sees, by name."""
    sees = by.identity.sees
    return [sink for sink in by.store.sinks() if sees(sink.table) and sees(sink.name)]


@router.post("")
def put_sink(by: Runner, body: Delivering) -> None:
    """Define a sink, or say how far it has come."""
    by.see(body.sink.table)
    by.change(body.sink.name)
    by.store.put_sink(body.fence, body.sink)


@router.post("/drop")
def drop_sink(by: Runner, body: OfSink) -> None:
    """Deliver nothing to it any more."""
    by.change(body.name)
    by.store.drop_sink(body.fence, body.name)
