"""The schemas in which SQL views show the maintained ones."""

from __future__ import annotations

from fastapi import APIRouter

from dbt_streamsql.meta.model.records import Published
from dbt_streamsql.meta.service.access.callers import Reader, Runner
from dbt_streamsql.meta.service.routes.bodies import OfSchema, Views

router = APIRouter(prefix="/published", tags=["published views"])


@router.get("")
def published(by: Reader) -> list[Published]:
    """The schemas, by name."""
    return by.store.published()


@router.post("")
def publish_views(by: Runner, body: Views) -> None:
    """Keep SQL views of the maintained ones in a schema, from now on."""
    by.store.publish_views(body.fence, body.views)


@router.post("/stop")
def stop_views(by: Runner, body: OfSchema) -> None:
    """Keep none in that schema any more."""
    by.store.stop_views(body.fence, body.schema_name)
