"""`/ui/api/query`: rows of one barrier, where the operator has turned that on.

A browser sends the query with the cookie. That it comes from these pages is known by three things:
other sites do not get the cookie sent (SameSite), a body in JSON needs the consent that this
service never gives (CORS), and browsers say where a request comes from (`Sec-Fetch-Site`): the
last two count for a page at another port of this host, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fastapi import APIRouter, Depends, HTTPException, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.meta import MetaStore
from dbt_streamsql.web.access import Guard, Sees

Ask = Callable[[str, int | None, Sees], Mapping[str, Any]]
"""Runs a query at a barrier (None: the newest) for someone who sees those tables; returns
`barrier`, `columns`, `rows`, `more` and `seconds` (see `engine.reads.limited_queries.Answer`).
Errors: StreamSqlError, which says why the query was refused."""

_LONGEST = 100_000
_STATUS = {"CONNECTION": 503, "QUERY_TIMEOUT": 504, "WAREHOUSE_BUSY": 429}


class Query(BaseModel):
    """The body of `/ui/api/query`."""

    model_config = ConfigDict(extra="forbid", strict=True)

    sql: str = Field(max_length=_LONGEST)
    barrier: int | None = Field(default=None, ge=1, lt=1 << 62)


def queries(
    store: MetaStore, guard: Guard, ask: Ask | None, headers: Mapping[str, str]
) -> APIRouter:
    """`/queries`, which says whether there are any, and `/query`. `guard` accepts the
    cookie for a POST."""
    routes = APIRouter()

    @routes.get("/queries", dependencies=[Depends(guard)])
    def about(answer: Response) -> dict[str, Any]:
        answer.headers.update(headers)
        return {"enabled": ask is not None, "barrier": store.last_committed()}

    @routes.post("/query", dependencies=[Depends(_of_these_pages), Depends(guard)])
    def query(body: Query, request: Request) -> Response:
        if ask is None:
            raise HTTPException(403, "queries are off: `streamsql meta serve --queries`")
        try:
            found = ask(body.sql, body.barrier, request.state.sees)
        except StreamSqlError as error:
            problem = {
                "code": error.code,
                "message": error.message,
                "given": error.given,
                "allowed": error.allowed,
                "hint": error.hint,
            }
            return JSONResponse(problem, _STATUS.get(error.code, 400), dict(headers))
        return JSONResponse(dict(found), headers=dict(headers))

    return routes


def _of_these_pages(request: Request) -> None:
    kind = request.headers.get("content-type", "").split(";")[0].strip().lower()
    if kind != "application/json":
        raise HTTPException(415, "the body must be declared as application/json")
    if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        raise HTTPException(403, "the request comes from another page")
