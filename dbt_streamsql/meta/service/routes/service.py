"""The service itself: whether it answers, and what a token may do."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from dbt_streamsql.meta.client.protocol import Greeting, Health
from dbt_streamsql.meta.model.records import Entry
from dbt_streamsql.meta.service.access.callers import Admin, Reader
from dbt_streamsql.meta.store.kept import States
from dbt_streamsql.meta.store.sql.schema import SCHEMA_VERSION

router = APIRouter(tags=["service"])


@router.get("/health")
def health() -> Health:
    """Whether the service answers; needs no token."""
    return Health()


@router.get("/whoami")
def whoami(by: Reader) -> Greeting:
    """What the token may do, and which store this is."""
    who = by.identity
    schemas = None if who.schemas is None else sorted(who.schemas)
    return Greeting(
        name=who.name,
        role=who.role,
        schemas=schemas,
        store=by.store.id,
        schema_version=SCHEMA_VERSION,
    )


@router.get("/states")
def states(by: Reader) -> States:
    """Texts that are others after a change of the store, or of what the token may see."""
    now, schemas = by.store.states(), ",".join(sorted(by.identity.schemas or ()))
    return States(f"{now.all} {schemas}", f"{now.jobs} {schemas}")


@router.get("/audit")
def audit(
    by: Admin,
    limit: Annotated[int, Query(ge=1, le=10_000)] = 100,
    before: Annotated[int | None, Query(ge=0, le=(1 << 63) - 1)] = None,
) -> list[Entry]:
    """The audit log, newest first; `before`: only entries with a smaller id."""
    return by.store.audit(limit, before)
