"""How a browser authenticates: with the bearer token of the REST service, pasted once.

The page itself holds no data and is served to everyone. Routes with data ask `verify`, which the
service provides: which tables does this token allow to see?

Programs send `Authorization: Bearer <token>`. A browser posts the token to `/ui/login` and gets it
back as a cookie that scripts cannot read (HttpOnly), that other sites cannot make it send
(SameSite=Strict), that is sent only below `/ui`, and only over TLS if it was set over TLS. It ends
with the browser, or by `/ui/logout`.
"""

from __future__ import annotations

from collections.abc import Callable

from fastapi import APIRouter, HTTPException, Request, Response
from pydantic import BaseModel

COOKIE = "streamsql_token"
PATH = "/ui"
_BEARER = "bearer "

PUBLIC = ("/ui", "/ui/", "/metrics")
"""The paths (prefixes when they end in `/`) that check tokens themselves: a gate before the
application lets them through."""

Sees = Callable[[str], bool]
"""Whether a user may see a table, by its full name."""
Verify = Callable[[str], Sees | None]
"""What the owner of a token may see; None for an unknown token. It must take equally long for
every wrong one (`hmac.compare_digest`)."""


def everything(_: str) -> bool:
    """Sees every table."""
    return True


class Login(BaseModel):
    """The body of `/ui/login`."""

    token: str


def token_of(request: Request) -> str:
    """The token that a request carries, '' when there is none.

    The cookie counts only for requests that change nothing: users cannot be lured into more.
    """
    header = request.headers.get("authorization", "")
    if header.lower().startswith(_BEARER):
        return header[len(_BEARER) :].strip()
    return request.cookies.get(COOKIE, "") if request.method in ("GET", "HEAD") else ""


class Guard:
    """A dependency that admits only readers, and stores what they see in `request.state.sees`.
    Without `verify` everyone sees everything."""

    def __init__(self, verify: Verify | None) -> None:
        self._verify = verify

    def __call__(self, request: Request) -> None:
        sees = self.find(token_of(request))
        if sees is None:
            raise HTTPException(401, "a token is required", {"WWW-Authenticate": "Bearer"})
        request.state.sees = sees

    def find(self, token: str) -> Sees | None:
        """What the owner of this token sees; None when it is unknown."""
        if self._verify is None:
            return everything
        return self._verify(token) if token else None


def logins(guard: Guard) -> APIRouter:
    """`/ui/login` and `/ui/logout`."""
    routes = APIRouter(prefix=PATH)

    @routes.post("/login")
    def login(body: Login, request: Request) -> Response:
        if guard.find(body.token) is None:
            raise HTTPException(401, "unknown token")
        done = Response(status_code=204)
        done.set_cookie(
            COOKIE,
            body.token,
            path=PATH,
            httponly=True,
            samesite="strict",
            secure=request.url.scheme == "https",
        )
        return done

    @routes.post("/logout")
    def logout() -> Response:
        done = Response(status_code=204)
        done.delete_cookie(COOKIE, path=PATH, httponly=True, samesite="strict")
        return done

    return routes
