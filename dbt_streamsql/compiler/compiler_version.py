"""Identifies the compiler that made a plan."""

from __future__ import annotations

from functools import cache
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path

_ROOMS = ("compiler", "plan")


@cache
def parser_version() -> str:
    return version("sqlglot")


@cache
def identity() -> str:
    """A hash that changes with the compiler's code or the parser under it."""
    root = Path(__file__).parents[1]
    digest = sha256(parser_version().encode())
    for file in sorted(file for room in _ROOMS for file in (root / room).rglob("*.py")):
        digest.update(f"\n{file.relative_to(root).as_posix()}\n".encode())
        digest.update(file.read_bytes())
    return digest.hexdigest()
