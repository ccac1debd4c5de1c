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
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import yaml

from dbt_streamsql.errors import StreamSqlError

Role = Literal["read", "run", "admin"]
ROLES: tuple[Role, ...] = get_args(Role)
"""Each may do everything that those before it may."""

_BYTES = 32
_SHORTEST = 32
_KEYS = ("name", "role", "schemas", "token", "sha256")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_PLAIN = re.compile(r"[!-~]+")


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
    listed = body.get("tokens") if isinstance(body, dict) and set(body) == {"tokens"} else None
    if not isinstance(listed, list) or not listed:
        raise _unusable(file, "is neither one token nor a list `tokens`")
    known: list[tuple[str, Identity]] = []
    for number, entry in enumerate(listed, 1):
        problem = next(_problems(entry), "")
        if problem:
            raise _unusable(file, f"entry {number}: {problem}")
        known.append(_entry(entry))
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
    return len(text) >= _SHORTEST and _PLAIN.fullmatch(text) is not None


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


def _problems(entry: Any) -> Iterator[str]:
    if not isinstance(entry, Mapping) or not set(entry) <= set(_KEYS):
        yield f"it must be a mapping of {', '.join(_KEYS)}"
        return
    if not isinstance(entry.get("name"), str) or not _PLAIN.fullmatch(entry["name"]):
        yield "`name` must be a word"
    if entry.get("role") not in ROLES:
        yield f"`role` must be one of {', '.join(ROLES)}"
    schemas = entry.get("schemas")
    if schemas is not None:
        if not isinstance(schemas, list) or not all(isinstance(s, str) and s for s in schemas):
            yield "`schemas` must be a list of names"
        if entry.get("role") == "admin":
            yield "an admin cannot have `schemas`"
    token, digest = entry.get("token"), entry.get("sha256")
    if (token is None) == (digest is None):
        yield "set either `token` or `sha256`"
    elif token is not None and not (isinstance(token, str) and _single(token)):
        yield f"`token` must be text of at least {_SHORTEST} characters without spaces"
    elif digest is not None and not (isinstance(digest, str) and _DIGEST.fullmatch(digest)):
        yield "`sha256` must be 64 hexadecimal digits in quotes"


def _entry(entry: Mapping[str, Any]) -> tuple[str, Identity]:
    schemas = entry.get("schemas")
    limited = None if schemas is None else frozenset(schemas)
    digest = entry["sha256"] if entry.get("token") is None else digest_of(entry["token"])
    return digest, Identity(entry["name"], entry["role"], limited)


def _unusable(file: Path, problem: str, hint: str = "") -> StreamSqlError:
    return StreamSqlError(
        "META_SERVICE",
        "the token file cannot be used",
        given=f"{file} {problem}",
        allowed="a file that you own, with mode 0600, that holds one token or a list `tokens`",
        hint=hint or "see docs/metaservice.md",
    )
