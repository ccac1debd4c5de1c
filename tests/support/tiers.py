"""Which tests a run has: a tier of `tests/tiers.yml`, and of what rotates one slice of eight.

`pytest --tier unit|test|processes`. A test belongs to the tier that its marks and fixtures say:
`processes` and `suites` by their marks, `test` when it needs a Spark or is marked `long`, `unit`
otherwise. In a tier with a list `always`, what the list does not name rotates: each run takes the
tests whose ids hash to its slice. The commit chooses the slice; `SLICE=3` repeats one, `SLICE=all`
runs all.
"""

from __future__ import annotations

import os
import subprocess
from functools import cache, partial
from hashlib import blake2s
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
LISTS = ROOT / "tests" / "tiers.yml"
TIERS = ("unit", "test", "processes")
SLICES = 8
VARIABLE = "SLICE"
ALL = "all"


@cache
def lists() -> dict[str, Any]:
    """What `tests/tiers.yml` says."""
    found: dict[str, Any] = yaml.safe_load(LISTS.read_text(encoding="utf-8"))
    return found


def listed(nodeid: str, names: list[str]) -> bool:
    """Whether a list names a test: by its folder, its file, its class, itself, or the first of its
    parameters."""
    return any(map(partial(_holds, nodeid), names))


def _holds(nodeid: str, name: str) -> bool:
    return nodeid == name or nodeid.startswith((f"{name}/", f"{name}::", f"{name}[", f"{name}-"))


def tier_of(item: pytest.Item) -> str:
    """The tier that a test belongs to; 'suites' is in none."""
    for mark in ("suites", "processes"):
        if item.get_closest_marker(mark):
            return mark
    marked = item.get_closest_marker("spark") or item.get_closest_marker("long")
    return "test" if marked or "spark" in getattr(item, "fixturenames", ()) else "unit"


def rotates(nodeid: str, tier: str) -> bool:
    """Whether a test of a tier runs in one run of eight only."""
    always = lists()[tier].get("always")
    return always is not None and not listed(nodeid, always)


def slice_of(nodeid: str) -> int:
    """The slice of a test, the same on every machine; tests that are listed together share one."""
    together = (name for name in lists()["together"] if _holds(nodeid, name))
    return int.from_bytes(blake2s(next(together, nodeid).encode()).digest()[:8], "big") % SLICES


def commit() -> str:
    """The hash of the commit that is checked out; '' outside a repository."""
    command = ["git", "rev-parse", "HEAD"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""


def chosen(given: str, head: str) -> int | None:
    """The slice to run, from what `SLICE` says and the commit; None: all of them."""
    if given == ALL:
        return None
    if not given:
        return int(head or "0", 16) % SLICES
    if given.isdecimal() and int(given) < SLICES:
        return int(given)
    raise pytest.UsageError(f"{VARIABLE} is {given!r}: give 0 to {SLICES - 1}, or {ALL}")


# -- pytest's hooks ----------------------------------------------------------------------------


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--tier", choices=TIERS, help="the tests of one tier, see tests/tiers.yml")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--tier"):
        # Workers find what the first process has chosen.
        turn = chosen(os.environ.get(VARIABLE, ""), commit())
        os.environ[VARIABLE] = ALL if turn is None else str(turn)


def pytest_report_header(config: pytest.Config) -> str | None:
    tier = config.getoption("--tier")
    if not tier:
        return None
    turn = os.environ[VARIABLE]
    if turn == ALL:
        return f"tier {tier}: all tests"
    return f"tier {tier}: slice {turn} of {SLICES}; SLICE={turn} repeats it, SLICE={ALL} runs all"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    tier = config.getoption("--tier")
    if not tier:
        return
    turn = chosen(os.environ[VARIABLE], "")
    kept: list[pytest.Item] = []
    others: list[pytest.Item] = []
    for item in items:
        runs = tier_of(item) == tier and (
            turn is None or not rotates(item.nodeid, tier) or slice_of(item.nodeid) == turn
        )
        (kept if runs else others).append(item)
    config.hook.pytest_deselected(items=others)
    # The longest first: at the end the other process would wait for them. Most are in every run.
    items[:] = sorted(
        kept, key=lambda item: rotates(item.nodeid, tier) and not item.get_closest_marker("long")
    )
