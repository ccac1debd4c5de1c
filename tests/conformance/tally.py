"""The table that ends a run: units by group. A unit passes when all its methods pass."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator

from tests.conformance.units import UNITS

_OUTCOMES = ("passed", "failed", "skipped")


def outcomes(stats: dict[str, list]) -> dict[str, str]:
    """By test class: its worst outcome. Errors of fixtures count as failures."""
    found: dict[str, str] = {}
    for kind, outcome in (
        ("passed", "passed"),
        ("skipped", "skipped"),
        ("failed", "failed"),
        ("error", "failed"),
    ):
        for report in stats.get(kind, ()):
            test = report.nodeid.split("::")[1] if "::" in report.nodeid else ""
            if test in UNITS:
                found[test] = outcome
    return found


def lines(found: dict[str, str]) -> Iterator[str]:
    """The table, the failed units by name, the reasons of skips and the totals."""
    groups: dict[str, Counter[str]] = defaultdict(Counter)
    for test, outcome in found.items():
        groups[UNITS[test].group][outcome] += 1
    yield _row("unit group", _OUTCOMES)
    for group, counts in sorted(groups.items()):
        yield _row(group, [counts[outcome] for outcome in _OUTCOMES])
    total = Counter(found.values())
    yield _row("all units", [total[outcome] for outcome in _OUTCOMES])
    for test in sorted(test for test, outcome in found.items() if outcome == "failed"):
        yield f"failed: {UNITS[test].module} {UNITS[test].name}"
    reasons = Counter(
        UNITS[test].not_applicable for test, outcome in found.items() if outcome == "skipped"
    )
    for reason, count in reasons.most_common():
        yield f"skipped {count}: {reason}"
    applicable = sum(not unit.not_applicable for unit in UNITS.values())
    yield f"{total['passed']} of {applicable} applicable units passed in this run"


def _row(title: str, values: Iterable[object]) -> str:
    return f"{title:<28}" + "".join(f"{value:>9}" for value in values)
