"""The API of the web UI, `/metrics`, and the files of the pages."""

from __future__ import annotations

import mimetypes
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Depends, HTTPException, Query, Request, Response
from fastapi.responses import FileResponse, RedirectResponse

from dbt_streamsql.meta import MetaStore
from dbt_streamsql.meta.inspect import delay, history, overview, trends
from dbt_streamsql.meta.inspect.history import History
from dbt_streamsql.web import metrics, tables
from dbt_streamsql.web.access import PATH, Guard, Verify, logins
from dbt_streamsql.web.events import Connection, Events, never
from dbt_streamsql.web.queries import Ask, queries

STATIC = Path(__file__).parent / "static"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}
NOT_STORED = {"Cache-Control": "no-store", **HEADERS}
MOST = 500
"""Maximum number of barriers per request."""

Newest = Annotated[int, Query(ge=1, le=MOST)]


def router(
    store: MetaStore,
    verify: Verify | None = None,
    clock: Callable[[], float] = time.time,
    stopping: Callable[[], bool] = never,
    ask: Ask | None = None,
) -> APIRouter:
    """The routes `/ui`, `/ui/api/…` and `/metrics` over one store; they only read.

    `verify` gives what the owner of a token may see (None: everyone sees everything); see
    `web/access.py`. `stopping`: whether the server is about to stop, and waits for its connections
    to end. `ask` runs queries of the pages (None: they are off); see `web/queries.py`.
    """
    guard = Guard(verify)
    routes = APIRouter(include_in_schema=False)
    routes.include_router(_pages())
    routes.include_router(logins(guard))
    guarded = APIRouter(dependencies=[Depends(guard)])
    guarded.include_router(_api(store, clock), prefix=f"{PATH}/api")
    listeners = Events(store, stopping)

    @guarded.get(f"{PATH}/api/events")
    async def events() -> Response:
        """Server-sent events: one when the store has changed."""
        return Connection(listeners, {**NOT_STORED, "X-Accel-Buffering": "no"})

    exporter = metrics.Exporter(store, clock)

    @guarded.get("/metrics")
    def prometheus(request: Request) -> Response:
        """Figures for Prometheus."""
        return Response(exporter.text(request.state.sees), media_type=metrics.CONTENT_TYPE)

    routes.include_router(guarded)
    asking = queries(store, Guard(verify, posts=True), ask, NOT_STORED)
    routes.include_router(asking, prefix=f"{PATH}/api")
    return routes


def _api(store: MetaStore, clock: Callable[[], float]) -> APIRouter:
    api = APIRouter(dependencies=[Depends(_not_stored)])

    def load(request: Request, newest: int, upto: int | None = None) -> History:
        return history.load(store, newest, upto).seen_by(request.state.sees)

    @api.get("/status")
    def status(request: Request, newest: Newest = history.NEWEST) -> dict[str, Any]:
        """What the warehouse is doing, and how up to date each table is."""
        found = load(request, newest)
        owner, live = store.fence().owner, len(store.leases.live())
        return {"now": clock(), **asdict(overview.status(found, clock(), owner, live))}

    @api.get("/topology")
    def topology(request: Request, newest: Newest = history.NEWEST) -> dict[str, Any]:
        """The graph, and the critical path of the newest committed barrier."""
        found = load(request, newest)
        last = found.newest_committed
        path = asdict(delay.critical_path(found, last.id)) if last else None
        return {"now": clock(), "path": path, **asdict(overview.topology(found))}

    @api.get("/barriers")
    def barriers(request: Request, newest: Newest = history.NEWEST) -> dict[str, Any]:
        """The newest barriers, newest first."""
        found = overview.barriers(load(request, newest))
        return {"now": clock(), "barriers": [asdict(summary) for summary in found]}

    @api.get("/trends")
    def told(request: Request, newest: Newest = history.NEWEST) -> dict[str, Any]:
        """Each table over the newest barriers, and what its changes have saved."""
        found = trends.trends(load(request, newest))
        return {"now": clock(), "tables": [asdict(trend) for trend in found]}

    @api.get("/barriers/{number}")
    def barrier(request: Request, number: int) -> dict[str, Any]:
        """One barrier: its jobs, and the delays of its tables."""
        found = overview.barrier(load(request, history.NEWEST, number), number)
        if found is None:
            raise HTTPException(404, "the barrier does not exist or is past its retention")
        # JavaScript's numbers are too short for snapshot ids.
        roots = [(t, None if s is None else str(s), at) for t, s, at in found.roots]
        return {"now": clock(), **asdict(found), "roots": roots}

    @api.get("/table")
    def table(request: Request, name: str, newest: Newest = history.NEWEST) -> dict[str, Any]:
        """One table: definition, schema, plan, versions. The name is the full one."""
        found = tables.describe(load(request, newest), name)
        if found is None:
            raise HTTPException(404, "there is no such table")
        return {"now": clock(), **found}

    return api


def _not_stored(response: Response) -> None:
    response.headers.update(NOT_STORED)


def _pages() -> APIRouter:
    pages = APIRouter(prefix=PATH)
    # Only listed files are served: no path is built from a request.
    files = {str(f.relative_to(STATIC).as_posix()): f for f in STATIC.rglob("*") if f.is_file()}

    @pages.get("")
    def folder() -> Response:
        return RedirectResponse(f"{PATH.removeprefix('/')}/")

    @pages.get("/")
    def index() -> Response:
        return _file(files["index.html"])

    @pages.get("/static/{name:path}")
    def static(name: str) -> Response:
        if name not in files:
            raise HTTPException(404)
        return _file(files[name])

    return pages


def _file(file: Path) -> Response:
    kind, _ = mimetypes.guess_type(file.name)
    if file.suffix == ".js":
        # Some systems map it to text/plain, which browsers refuse to run.
        kind = "text/javascript"
    return FileResponse(file, media_type=kind, headers={"Cache-Control": "no-cache", **HEADERS})
