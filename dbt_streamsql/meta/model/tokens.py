"""Bearer tokens: the sender of a request, its role, and its schemas.

A file of mode 0600 holds either one token, for everything, or a YAML document with several:

    tokens:
      - {name: dashboard, role: read, schemas: [shop], sha256: 9f86d0…}
      - {name: nightly, role: run, token: "…"}
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, get_args

import yaml
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    model_validator,
)

from dbt_streamsql.errors import StreamSqlError

Role = Literal["read", "run", "admin"]
ROLES: tuple[Role, ...] = get_args(Role)
"""Each may do everything that those before it may."""

_BYTES = 32
_SHORTEST = 32
_DIGEST = r"^[0-9a-f]{64}$"
_PLAIN = r"^[!-~]+$"


@dataclass(frozen=True)
class Identity:
    """The owner of a token. `schemas` is None when it is for all of them.

    A runner sees all tables, because it must know what every view still needs before it removes
    anything: `schemas` limits what it may define, stage and drop. A reader sees only those tables.
    """

    name: str
    role: Role
    schemas: frozenset[str] | None = None

    def has(self, role: Role) -> bool:
        return ROLES.index(self.role) >= ROLES.index(role)

    def sees(self, table: str) -> bool:
        return self.has("run") or self._covers(table)

    def changes(self, table: str) -> bool:
        return self.has("run") and self._covers(table)

    def _covers(self, table: str) -> bool:
        return self.schemas is None or schema_of(table) in self.schemas


class Tokens:
    """The tokens that a service knows; it keeps only their digests."""

    def __init__(self, known: Iterable[tuple[str, Identity]]) -> None:
        """Pairs of the token's SHA-256 in hexadecimal, and its owner."""
        self._known = tuple(known)

    def find(self, token: str) -> Identity | None:
        """The owner of this token. Takes equally long for every unknown token."""
        digest, found = digest_of(token), None
        for known, identity in self._known:
            if hmac.compare_digest(digest, known):
                found = identity
        return found


def schema_of(table: str) -> str:
    """The schema of a plain three-part name; '' for other names, which no limited token covers."""
    parts = table.split(".")
    return parts[1] if len(parts) == 3 and "`" not in table else ""


def digest_of(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def one(token: str) -> Tokens:
    """A single token, for everything."""
    return Tokens([(digest_of(token), Identity("default", "admin"))])


def make(file: Path) -> None:
    """Write a new random token to a file that only its owner may read, unless it exists."""
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return
    except OSError as error:
        raise _unusable(file, f"cannot be written: {error.strerror}") from error
    with os.fdopen(descriptor, "w", encoding="ascii") as out:
        out.write(secrets.token_urlsafe(_BYTES) + "\n")


def load(file: Path) -> Tokens:
    """The tokens of a file. Error: META_SERVICE, which reveals none of them."""
    text = _private(file)
    if _single(text):
        return one(text)
    try:
        body = yaml.safe_load(text)
    except yaml.YAMLError:
        body = None
    try:
        entries = _File.model_validate(body).tokens
    except ValidationError as error:
        # Without its cause: that shows what was given.
        raise _unusable(file, _problems(error)) from None
    known = [entry.known for entry in entries]
    for what, values in (
        ("name", [who.name for _, who in known]),
        ("token", [d for d, _ in known]),
    ):
        if len(set(values)) < len(values):
            raise _unusable(file, f"two entries have the same {what}")
    return Tokens(known)


def single(file: Path) -> str:
    """The token of a file that holds just one and is this user's; '' otherwise."""
    try:
        text = _private(file)
    except StreamSqlError:
        return ""
    return text if _single(text) else ""


def _single(text: str) -> bool:
    return len(text) >= _SHORTEST and re.fullmatch(_PLAIN, text) is not None


def _private(file: Path) -> str:
    try:
        with file.open(encoding="utf-8") as opened:
            found = os.fstat(opened.fileno())
            if found.st_mode & (stat.S_IRWXG | stat.S_IRWXO) or found.st_uid != os.geteuid():
                raise _unusable(
                    file, "can be read or written by other users", f"`chmod 600 {file}`"
                )
            return opened.read().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise _unusable(file, f"cannot be read: {type(error).__name__}") from error


class _Entry(BaseModel):
    """One entry of `tokens`."""

    model_config = ConfigDict(extra="forbid", strict=True, hide_input_in_errors=True)

    name: Annotated[str, StringConstraints(pattern=_PLAIN)]
    role: Role
    schemas: list[Annotated[str, StringConstraints(min_length=1)]] | None = None
    token: Annotated[str, StringConstraints(pattern=_PLAIN, min_length=_SHORTEST)] | None = None
    sha256: Annotated[str, StringConstraints(pattern=_DIGEST)] | None = None

    @model_validator(mode="after")
    def _is_whole(self) -> _Entry:
        if (self.token is None) == (self.sha256 is None):
            raise ValueError("set either `token` or `sha256`")
        if self.schemas is not None and self.role == "admin":
            raise ValueError("an admin cannot have `schemas`")
        return self

    @property
    def known(self) -> tuple[str, Identity]:
        """The token's digest, and its owner."""
        limited = None if self.schemas is None else frozenset(self.schemas)
        digest = self.sha256 or digest_of(self.token or "")
        return digest, Identity(self.name, self.role, limited)


class _File(BaseModel):
    """A file of several tokens."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    tokens: list[_Entry] = Field(min_length=1)


_RULES = {
    "": "it must be a mapping of name, role, schemas, token, sha256",
    "name": "`name` must be a word",
    "role": f"`role` must be one of {', '.join(ROLES)}",
    "schemas": "`schemas` must be a list of names",
    "token": f"`token` must be text of at least {_SHORTEST} characters without spaces",
    "sha256": "`sha256` must be 64 hexadecimal digits in quotes",
}


def _problems(error: ValidationError) -> str:
    """All that is wrong with a file, without what it holds."""
    found: list[str] = []
    for each in error.errors(include_input=False):
        list_, number, key = (*each["loc"], "", "", "")[:3]
        if list_ != "tokens" or number == "":
            return "is neither one token nor a list `tokens`"
        own = each["ctx"]["error"] if each["type"] == "value_error" else ""
        found.append(f"entry {int(number) + 1}: {own or _RULES.get(str(key), _RULES[''])}")
    return "; ".join(dict.fromkeys(found))


def _unusable(file: Path, problem: str, hint: str = "") -> StreamSqlError:
    return StreamSqlError(
        "META_SERVICE",
        "the token file cannot be used",
        given=f"{file} {problem}",
        allowed="a file that you own, with mode 0600, that holds one token or a list `tokens`",
        hint=hint or "see docs/metaservice.md",
    )
