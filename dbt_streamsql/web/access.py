"""How a browser says who it is: the bearer token of the REST service, pasted once.

The page itself holds no data and is served to everybody. What has data asks `verify`, which the
service gives: does this token allow to read? Programs send `Authorization: Bearer <token>`. A
browser posts the token to `/ui/login` and gets it back as a cookie that scripts cannot read
(HttpOnly), that other sites cannot make it send (SameSite=Strict), that is sent below `/ui` only,
and only over TLS if it was set over TLS. It ends with the browser, or by `/ui/logout`.
"""

from __future__ import annotations

from collections.abc import Callable

from fastapi import APIRouter, HTTPException, Request, Response
from pydantic import BaseModel

COOKIE = "streamsql_token"
PATH = "/ui"
_BEARER = "bearer "

Verify = Callable[[str], bool]
"""Whether a token allows to read. It must take as long for a wrong one (`hmac.compare_digest`)."""


class Login(BaseModel):
    """The body of `/ui/login`."""

    token: str


def token_of(request: Request) -> str:
    """The token that a request carries, '' when there is none.

    The cookie counts for requests that change nothing only: nobody can be lured into more.
    """
    header = request.headers.get("authorization", "")
    if header.lower().startswith(_BEARER):
        return header[len(_BEARER) :].strip()
    return request.cookies.get(COOKIE, "") if request.method in ("GET", "HEAD") else ""


class Guard:
    """A dependency that lets only readers in; without `verify` everybody is one."""

    def __init__(self, verify: Verify | None) -> None:
        self.verify = verify

    def __call__(self, request: Request) -> None:
        if self.verify is not None and not self.permits(token_of(request)):
            raise HTTPException(401, "a token is needed", {"WWW-Authenticate": "Bearer"})

    def permits(self, token: str) -> bool:
        """Whether this token allows to read."""
        return self.verify is None or (bool(token) and self.verify(token))


def logins(guard: Guard) -> APIRouter:
    """`/ui/login` and `/ui/logout`."""
    routes = APIRouter(prefix=PATH, include_in_schema=False)

    @routes.post("/login")
    def login(body: Login, request: Request) -> Response:
        if not guard.permits(body.token):
            raise HTTPException(401, "this token is not known")
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
