"""How a browser authenticates: with the bearer token of the REST service, pasted once.

The page itself holds no data and is served to everyone. Routes with data ask `verify`, which the
service provides: which tables does this token allow to see?

Programs send `Authorization: Bearer <token>`. A browser posts the token to `/ui/login` and gets it
back as a cookie that scripts cannot read (HttpOnly), that other sites cannot make it send
(SameSite=Strict), that is sent only below `/ui`, and only over TLS if it was set over TLS. It ends
with the browser, or by `/ui/logout`.

A program that has a token can ask `/ui/link` for a code, which signs in one browser instead of it:
it works once and for ten minutes, so a link with it may be shown where a token may not.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable

from fastapi import APIRouter, Depends, HTTPException, Request, Response
from pydantic import BaseModel

COOKIE = "streamsql_token"
PATH = "/ui"
CODE_SECONDS = 600.0
_BEARER = "bearer "
_MOST_CODES = 100

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
    """The body of `/ui/login`: a token, or a code of `/ui/link`."""

    token: str = ""
    code: str = ""


class Codes:
    """Codes that stand for a token once, in the memory of this process."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._tokens: dict[str, tuple[str, float]] = {}
        self._lock = threading.Lock()

    def make(self, token: str) -> str:
        """A new code; the oldest ones give way when there are too many."""
        now, code = self._clock(), secrets.token_urlsafe(24)
        with self._lock:
            valid = [item for item in self._tokens.items() if item[1][1] > now]
            self._tokens = dict(valid[-(_MOST_CODES - 1) :])
            self._tokens[code] = (token, now + CODE_SECONDS)
        return code

    def take(self, code: str) -> str:
        """The token that the code stands for; '' when it is unknown, used, or too old."""
        with self._lock:
            token, until = self._tokens.pop(code, ("", 0.0))
        return token if until > self._clock() else ""


def token_of(request: Request, *, posts: bool = False) -> str:
    """The token that a request carries, '' when there is none.

    The cookie counts only for requests that change nothing: users cannot be lured into more.
    `posts`: it counts for a POST too, of which the route knows that it changes nothing.
    """
    header = request.headers.get("authorization", "")
    if header.lower().startswith(_BEARER):
        return header[len(_BEARER) :].strip()
    methods = ("GET", "HEAD", "POST") if posts else ("GET", "HEAD")
    return request.cookies.get(COOKIE, "") if request.method in methods else ""


class Guard:
    """A dependency that admits only readers, and stores what they see in `request.state.sees`.
    Without `verify` everyone sees everything. `posts` as in `token_of`."""

    def __init__(self, verify: Verify | None, *, posts: bool = False) -> None:
        self._verify = verify
        self._posts = posts

    def __call__(self, request: Request) -> None:
        sees = self.find(token_of(request, posts=self._posts))
        if sees is None:
            raise HTTPException(401, "a token is required", {"WWW-Authenticate": "Bearer"})
        request.state.sees = sees

    def find(self, token: str) -> Sees | None:
        """What the owner of this token sees; None when it is unknown."""
        if self._verify is None:
            return everything
        return self._verify(token) if token else None


def logins(guard: Guard) -> APIRouter:
    """`/ui/login`, `/ui/link` and `/ui/logout`."""
    routes = APIRouter(prefix=PATH)
    codes = Codes()

    @routes.post("/link", dependencies=[Depends(guard)])
    def link(request: Request, answer: Response) -> dict[str, str]:
        answer.headers["Cache-Control"] = "no-store"
        return {"code": codes.make(token_of(request))}

    @routes.post("/login")
    def login(body: Login, request: Request) -> Response:
        token = codes.take(body.code) if body.code else body.token
        if guard.find(token) is None:
            raise HTTPException(401, "unknown token")
        done = Response(status_code=204)
        done.set_cookie(
            COOKIE,
            token,
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
