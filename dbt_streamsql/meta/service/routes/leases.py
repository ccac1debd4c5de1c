"""Leases: committed barriers that readers go on reading."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from fastapi import APIRouter, Path

from dbt_streamsql.meta.model.records import Lease
from dbt_streamsql.meta.service.access.callers import Reader, Runner
from dbt_streamsql.meta.service.routes.bodies import Lasting, Leases, TakeLease

router = APIRouter(prefix="/leases", tags=["leases"])

LeaseId = Annotated[str, Path(pattern=r"^[0-9a-f]{32}$")]


@router.get("")
def live(by: Reader) -> list[Lease]:
    """Leases that have not ended. Readers do not see the ids: an id is enough to end the lease."""
    leases = by.store.leases.live()
    return leases if by.identity.has("run") else [replace(lease, id="") for lease in leases]


@router.post("", status_code=201)
def take(by: Reader, body: TakeLease) -> Lease:
    """Hold a committed barrier."""
    return by.store.leases.take(body.owner, body.barrier, body.seconds)


@router.get("/records/ended")
def ended(by: Runner) -> list[str]:
    """Those that have ended and are still recorded."""
    return by.store.leases.ended()


@router.post("/records/forget")
def forget(by: Runner, body: Leases) -> None:
    """Remove the records of leases: nothing is left of what they held."""
    by.store.leases.forget(body.leases)


@router.post("/{lease}/renew")
def renew(by: Reader, lease: LeaseId, body: Lasting) -> float:
    """Hold it longer; until when."""
    return by.store.leases.renew(lease, body.seconds)


@router.delete("/{lease}")
def give_back(by: Reader, lease: LeaseId) -> None:
    """End it; harmless when it has ended already."""
    by.store.leases.give_back(lease)
