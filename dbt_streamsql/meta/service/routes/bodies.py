"""What the bodies of requests hold, from records of `meta/model/records.py`."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Query
from pydantic import BaseModel, ConfigDict, Field

from dbt_streamsql.meta.model.records import (
    ChangeFile,
    Fence,
    Int64,
    Job,
    Name,
    Published,
    Real,
    Sink,
    Span,
    TableVersion,
    Text,
)
from dbt_streamsql.meta.store.retention import Retention

_HIGHEST = (1 << 63) - 1

Number = Annotated[int, Path(ge=0, le=_HIGHEST, description="number of a barrier")]
AtNumber = Annotated[int, Query(ge=0, le=_HIGHEST, description="number of a barrier")]
Table = Annotated[
    str,
    Query(
        pattern=r"^[^\x00]*$", min_length=1, max_length=1000, description="catalog.schema.table"
    ),
]

Most = Annotated[int, Query(ge=1, le=100_000, description="maximum number of results")]

HowMany = Annotated[int, Query(ge=1, le=_HIGHEST)]
Seconds = Annotated[float, Query(ge=0, allow_inf_nan=False)]


class Body(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Fenced(Body):
    """A write: only the runner who holds the newest fence may do it."""

    fence: Fence


class Inputs(Fenced):
    inputs: dict[Name, Int64 | None]
    committed: dict[Name, Real] = Field(default_factory=dict)


class Spans(Fenced):
    spans: dict[Name, Span]


class Definition(Fenced):
    job: Job


class Versions(Fenced):
    versions: Annotated[list[TableVersion], Field(min_length=1)]


class Views(Fenced):
    views: Published


class OfSchema(Fenced):
    schema_name: Name


class Delivering(Fenced):
    sink: Sink


class OfSink(Fenced):
    name: Name


class OfTable(Fenced):
    table: Name


class Written(OfTable):
    snapshot: Int64 | None = None


class Change(Fenced):
    change: ChangeFile


class Upto(OfTable):
    barrier: Int64


class Paths(Fenced):
    paths: list[Text]


class Retain(Fenced):
    retention: Retention


class Note(Fenced):
    action: Name
    detail: dict[str, object]


class Owner(Body):
    owner: Annotated[str, Field(pattern=r"^[!-~]{1,300}$")]


class Lasting(Body):
    seconds: Annotated[float, Field(strict=True, gt=0, le=86_400)]


class TakeLease(Lasting):
    owner: Text
    barrier: Int64


class Resign(Body):
    owner: Name


class Lead(Lasting):
    owner: Name


class Leases(Body):
    leases: list[Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]]


class Stage(Body):
    owner: Text
    token: Name
    table: Name
    body: Text


class StagedToken(Body):
    owner: Text
    token: Name
