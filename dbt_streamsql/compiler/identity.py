"""Which compiler made a plan."""

from __future__ import annotations

from functools import cache
from hashlib import sha256
from importlib.metadata import version as version_of
from pathlib import Path

_ROOMS = ("compiler", "plan")


@cache
def identity() -> str:
    """Another text when the code that compiles, or the parser under it, is another."""
    root = Path(__file__).parents[1]
    digest = sha256(version_of("sqlglot").encode())
    for file in sorted(file for room in _ROOMS for file in (root / room).rglob("*.py")):
        digest.update(f"\n{file.relative_to(root).as_posix()}\n".encode())
        digest.update(file.read_bytes())
    return digest.hexdigest()
