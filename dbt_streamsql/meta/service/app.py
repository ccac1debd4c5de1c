"""The application: routers behind the gate, and every error as JSON."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Collection, Iterable
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.routing import compile_path

from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.meta.client.protocol import API, STATUS, Problem
from dbt_streamsql.meta.model.tokens import Tokens
from dbt_streamsql.meta.service.access.state import OWNER_SECONDS, RUNNER_SECONDS, Service
from dbt_streamsql.meta.service.gate import Gate
from dbt_streamsql.meta.service.routes import (
    barriers,
    leader,
    leases,
    published,
    runner,
    service,
    sinks,
    staged,
    tables,
)
from dbt_streamsql.meta.store.store import SqlMetaStore

LOOPBACK = ("localhost", "127.0.0.1", "[::1]")

_ERRORS: dict[int | str, dict[str, Any]] = {
    "4XX": {"model": Problem, "description": "The request was rejected; nothing was changed."},
    503: {"model": Problem, "description": "The store cannot be reached."},
}
_WORDS = {404: "there is no such address", 405: "the address does not support this method"}

log = logging.getLogger("dbt_streamsql.meta")


def create_app(
    store: SqlMetaStore,
    tokens: Tokens,
    *,
    hosts: Collection[str] = LOOPBACK,
    routers: Iterable[APIRouter] = (),
    public: Collection[str] = (),
    runner_seconds: float = RUNNER_SECONDS,
    owner_seconds: float = OWNER_SECONDS,
) -> FastAPI:
    """The service of one store; the caller closes the store.

    `hosts` are the names that clients know it by. `routers` are additional, `public` are their
    paths that need no token (prefixes when they end in `/`). A runner that is silent for
    `runner_seconds` may be succeeded; after `owner_seconds` a process's staged data is orphaned.
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        app.state.service.start()
        yield
        app.state.service.close()

    app = FastAPI(
        title="dbt-streamsql MetaService",
        description="Which table version belongs to which barrier, and which job feeds which.",
        version=API.removeprefix("/v"),
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
        redirect_slashes=False,
        separate_input_output_schemas=False,
    )
    app.state.service = Service(store, tokens, runner_seconds, owner_seconds)
    for each in (service, barriers, tables, published, runner, leader, leases, sinks, staged):
        app.include_router(each.router, prefix=API, responses=_ERRORS)
    for extra in routers:
        app.include_router(extra)
    app.add_exception_handler(StreamSqlError, _refused)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _unknown)
    app.add_middleware(Gate, hosts=hosts, public=public)
    return app


def _answer(status: int, problem: Problem) -> JSONResponse:
    return JSONResponse(problem.model_dump(), status)


async def _refused(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, StreamSqlError)
    status = STATUS.get(error.code)
    if status is None:
        log.error("an error without an HTTP status", exc_info=error)
    return _answer(status or 500, Problem.of(error))


async def _invalid(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    # Where and what, but not the values: a misplaced value may be a secret.
    found = [f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors()]
    text = "; ".join(found)[:1000]
    return _answer(
        422,
        Problem(
            code="META_REQUEST",
            message="the request is invalid",
            given=text,
            hint="see /openapi.json; use the same version of dbt-streamsql as the service",
        ),
    )


async def _unknown(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    status, message = error.status_code, str(error.detail)
    if message == HTTPStatus(status).phrase:
        message = _WORDS.get(status, message)
    code = {401: "META_DENIED", 404: "META_MISSING"}.get(status, "META_REQUEST")
    answer = _answer(status, Problem(code=code, message=message))
    answer.headers.update(error.headers or {})
    methods = _methods(request.app, request.url.path) if status == 405 else []
    if methods:
        answer.headers["Allow"] = ", ".join(methods)
    return answer


def _methods(app: FastAPI, path: str) -> list[str]:
    """The methods of an address; a single route knows only its own."""
    paths: dict[str, dict[str, object]] = app.openapi()["paths"]
    known = [path] if path in paths else [p for p in paths if compile_path(p)[0].match(path)]
    return sorted({method.upper() for each in known for method in paths[each]})
