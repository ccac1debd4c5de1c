"""The protocol between the client and the service of MetaService, in addition to the records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from dbt_streamsql.errors import CODES, StreamSqlError
from dbt_streamsql.meta.model.records import Fence
from dbt_streamsql.meta.model.tokens import Role
from dbt_streamsql.meta.store.staged_tables import StagedRecord

API = "/v1"
"""The prefix of every path except /openapi.json. It changes when an old client would fail."""

STATUS: Mapping[str, int] = {
    "CYCLE": 409,
    "DUPLICATE_WRITER": 409,
    "LEASE_LOST": 409,
    "META_CONFLICT": 409,
    "META_DENIED": 403,
    "META_MISSING": 404,
    "META_REQUEST": 422,
    "META_UNREACHABLE": 503,
    "WAREHOUSE_BUSY": 409,
}
"""The HTTP status of each error code; any other code is 500."""


class Problem(BaseModel):
    """The body of every answer that is not a success."""

    model_config = ConfigDict(json_schema_extra={"additionalProperties": False})

    code: str
    message: str
    given: str = ""
    allowed: str = ""
    hint: str = ""

    @classmethod
    def of(cls, error: StreamSqlError) -> Problem:
        return cls(
            code=error.code,
            message=error.message,
            given=error.given,
            allowed=error.allowed,
            hint=error.hint,
        )

    def error(self) -> StreamSqlError:
        """The same error on the other side."""
        return StreamSqlError(
            self.code if self.code in CODES else "INTERNAL",
            self.message,
            given=self.given,
            allowed=self.allowed,
            hint=self.hint,
        )


class Health(BaseModel):
    """The service responds. Anything else requires a token."""

    status: str = "ok"


class Greeting(BaseModel):
    """Whose token it is and what it may do; the store's `id`, and the version of its tables."""

    name: str
    role: Role
    schemas: list[str] | None
    store: str
    schema_version: int


class Edge(BaseModel):
    """The job that writes `sink` reads `source`."""

    source: str
    sink: str


Seconds = Annotated[
    float, Field(gt=0, description="send a heartbeat before this many seconds pass")
]


class Grant(BaseModel):
    """The right to write, for as long as its holder is heard of."""

    fence: Fence
    heard_within: Seconds


class StagedOwner(BaseModel):
    """Under which name something is staged, for as long as it is heard of."""

    owner: str
    heard_within: Seconds


class Sweep(BaseModel):
    """What dead owners left, for one process to remove."""

    id: str
    records: list[StagedRecord]
    heard_within: Seconds
