"""Plays scenarios, keeps the tally, and makes what fails small."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2s
from pathlib import Path
from time import monotonic
from typing import Any

from dbt_streamsql.plan.compiled import CompiledPlan
from tests.differential.duck_catalog import DuckCatalog
from tests.differential.duck_dialect import to_duck
from tests.differential.duck_epoch import DuckEpoch
from tests.differential.duck_grammar import TABLES, VIEWS, Scenario, View
from tests.differential.duck_operators import OPERATORS
from tests.differential.duck_world import DuckWorld
from tests.support.product import compile_view, without_qualify

REGRESSIONS = Path(__file__).parent / "regressions"
TOLERANCE = 1e-9
"""Relative, for doubles: a stored quotient and one computed anew may differ in their last bits,
and `duck_dialect.DIGITS` rounds one of them."""
_OUR_FAULT = (
    *("rewritten query is not valid", "parentheses would be lost", "the parser reads"),
    "is read as",
)
"""Reasons of a full refresh that no query of the grammar gives."""
BIG = 3000
"""Rows of a view above which it is left out: a pile of cross joins shows nothing more."""


class Difference(AssertionError):
    """A view that is not its query."""


class Refused(AssertionError):
    """The compiler's own rewriting of a query is refused by DuckDB."""


@dataclass
class Failure:
    """What went wrong with one view: the class of the error, where, and the scenario."""

    kind: str
    text: str
    scenario: Scenario


@dataclass
class Tally:
    """What was tested. `pairs` and `kept` count (outer, inner) operators of all views and of the
    incremental ones, `changed` the view-epochs in which an input of the view changed."""

    views: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    pairs: Counter[tuple[str, str]] = field(default_factory=Counter)
    kept: Counter[tuple[str, str]] = field(default_factory=Counter)
    uses: Counter[str] = field(default_factory=Counter)
    incremental: Counter[str] = field(default_factory=Counter)
    epochs: int = 0
    changed: int = 0
    rows: int = 0
    began: float = field(default_factory=monotonic)

    def note(self, view: View, mode: str, reason: str = "") -> None:
        self.views[mode] += 1
        self.pairs.update(view.pairs)
        self.uses.update(view.operators)
        if mode == "incremental":
            self.kept.update(view.pairs)
            self.incremental.update(view.operators)
        elif reason:
            self.reasons[re.split(r":| \(line", reason, maxsplit=1)[0]] += 1

    def report(self, *, table: bool) -> str:
        """The tally as text; `table`: with every pair of operators."""
        seconds = monotonic() - self.began
        pace = self.epochs * 60 / max(seconds, 0.1)
        lines = [
            f"{self.epochs} view-epochs in {seconds:.0f} s ({pace:.0f} a minute)",
            f"{self.changed} of them with changes, {self.rows} rows compared",
            f"views: {dict(self.views)}",
            "full because of: "
            + ", ".join(f"{why} {count}" for why, count in self.reasons.most_common()),
            "operator: views that hold it, of these incremental",
        ]
        lines += [
            f"  {name:20} {self.uses[name]:6} {self.incremental[name]:6}"
            for name in ("scan", *OPERATORS)
        ]
        lines += self._coverage(table=table)
        return "\n".join(lines)

    def _coverage(self, *, table: bool) -> list[str]:
        wanted = [(outer, inner) for outer in OPERATORS for inner in OPERATORS]
        rare = sum(self.pairs[pair] < 100 for pair in wanted)
        never = sum(not self.kept[pair] for pair in wanted)
        least = min(self.pairs[pair] for pair in wanted)
        seen = f"each at least {least} times, {rare} of them less than 100 times"
        lines = [f"{len(wanted)} pairs of operators: {seen}, {never} never in an incremental view"]
        if not table:
            return lines
        names = tuple(OPERATORS)
        lines.append("pairs, a row for each outer operator: seen/incremental of each inner one")
        lines += [f"  {number:3} = {name}" for number, name in enumerate(names)]
        lines.append("      " + "".join(f"{number:>10}" for number in range(len(names))))
        for number, outer in enumerate(names):
            cells = (f"{self.pairs[outer, i]}/{self.kept[outer, i]}" for i in names)
            lines.append(f"  {number:3} " + "".join(f"{cell:>10}" for cell in cells))
        return lines


# -- playing -------------------------------------------------------------------------------------


def play(chosen: Scenario, tally: Tally | None = None) -> list[Failure]:
    """Run a scenario; one failure at most of each view, with the scenario cut to it."""
    world = DuckWorld(TABLES, VIEWS)
    failures: list[Failure] = []
    try:
        world.advance(chosen.create, quiet=True)
        running: dict[int, DuckEpoch] = {}
        for number, view in enumerate(chosen.views):
            try:
                made = _open(world, view, f"v{number}", tally)
            except Exception as error:  # noqa: BLE001 - what it was is what is reported
                failures.append(_failure(chosen, number, -1, error))
                continue
            if made is not None:
                running[number] = made
        for epoch, statements in enumerate(chosen.epochs):
            world.advance(statements, quiet=chosen.quiet)
            for number, view in list(running.items()):
                try:
                    advance(view, printed=chosen.printed, tally=tally)
                except Exception as error:  # noqa: BLE001 - see above
                    failures.append(_failure(chosen, number, epoch, error))
                    del running[number]
    finally:
        world.close()
    return failures


def _failure(chosen: Scenario, number: int, epoch: int, error: Exception) -> Failure:
    only = Scenario(
        chosen.seed,
        chosen.create,
        (chosen.views[number],),
        chosen.epochs[: epoch + 1],
        chosen.quiet,
        chosen.printed,
    )
    return Failure(type(error).__name__, f"view {number}, epoch {epoch}: {error}", only)


def _open(world: DuckWorld, view: View, name: str, tally: Tally | None) -> DuckEpoch | None:
    """The view, filled, when it is maintained from changes."""
    catalog = DuckCatalog(world.connection, world.tables)
    plan = compile_view(without_qualify(view.sql), catalog, table=f"lake.v.{name}")
    if plan.mode == "full":
        if any(sign in plan.reasons[0] for sign in _OUR_FAULT):
            raise Refused(plan.reasons[0])
        if tally is not None:
            tally.note(view, "full", plan.reasons[0])
        return None
    if CompiledPlan.from_stored(plan.to_stored()) != plan:
        raise Difference("the plan does not come back from JSON")
    epoch = DuckEpoch(world, plan, name)
    if world.rows(f"SELECT count(*) FROM ({epoch.full})")[0][0] > BIG:
        if tally is not None:
            tally.note(view, "too big")
        return None
    if tally is not None:
        tally.note(view, "incremental")
    epoch.fill()
    verify(epoch)
    return epoch


def advance(epoch: DuckEpoch, *, printed: bool = False, tally: Tally | None = None) -> None:
    """One epoch of a view. Error: `Difference` unless it is its query."""
    moved = any(not epoch.world.unchanged(table) for table in epoch.plan.tables)
    writes = epoch.relations.writes
    epoch.run(printed=printed)
    if not moved and epoch.relations.writes != writes:
        raise Difference("the view was written though no input changed")
    rows = verify(epoch) if moved else 0
    if tally is not None:
        tally.epochs += 1
        tally.changed += moved
        tally.rows += rows


def verify(epoch: DuckEpoch) -> int:
    """`Difference` unless the view is its query, and its hidden columns what would fill them."""
    plan = epoch.plan
    stored = [column.name for column in epoch.columns]
    count = compare(epoch, epoch.full, stored, "stored columns") if plan.full_sql else 0
    # Two windows that number copies of one row may pair their numbers in any way.
    if plan.canonical and plan.sql.upper().count(" OVER (") > 1:
        return count
    return compare(epoch, to_duck(plan.sql), [column.name for column in plan.columns], "rows")


def compare(epoch: DuckEpoch, query: str, names: Sequence[str], what: str) -> int:
    listed = ", ".join(f'"{name}"' for name in names)
    stored = epoch.world.rows(f"SELECT {listed} FROM {epoch.stored()}")
    wanted = epoch.world.rows(f"SELECT {listed} FROM ({query})")
    extra, missing = _left(stored, wanted), _left(wanted, stored)
    if (extra or missing) and not _close(extra, missing):
        raise Difference(f"{what} ({listed}): too many {extra[:4]}, missing {missing[:4]}")
    return len(wanted)


def _left(rows: list[tuple], others: list[tuple]) -> list[tuple]:
    """`rows EXCEPT ALL others`; rows hold lists and dicts, so texts are counted."""
    counted = Counter(map(repr, others))
    left = []
    for row in rows:
        counted[repr(row)] -= 1
        if counted[repr(row)] < 0:
            left.append(row)
    return left


def _close(extra: list[tuple], missing: list[tuple]) -> bool:
    """Whether the rows are the same but for the last bits of doubles."""
    if len(extra) != len(missing):
        return False
    left = list(missing)
    for row in extra:
        match = next((other for other in left if _alike(row, other)), None)
        if match is None:
            return False
        left.remove(match)
    return not left


def _alike(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        if math.isnan(one) or math.isnan(other):
            return math.isnan(one) and math.isnan(other)
        return math.isclose(one, other, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(_alike, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return list(one) == list(other) and all(map(_alike, one.values(), other.values()))
    return one == other


def keep(failures: Iterable[Failure]) -> list[Path]:
    """Write what failed as regressions that the second test replays."""
    REGRESSIONS.mkdir(exist_ok=True)
    made = []
    for failure in failures:
        text = failure.scenario.to_json()
        path = REGRESSIONS / f"{blake2s(text.encode(), digest_size=6).hexdigest()}.json"
        path.write_text(text + "\n")
        made.append(path)
    return made
