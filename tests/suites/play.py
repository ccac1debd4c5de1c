"""Play a suite: views over tables that change, compared with an oracle after every epoch."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from dbt_streamsql import Engine
from dbt_streamsql.engine import TableReport
from tests.suites.oracle import Oracle, differences


@dataclass(frozen=True)
class Query:
    """A view's query; `oracle` is DuckDB's text of it ('' = Spark's own answer is compared)."""

    name: str
    sql: str
    oracle: str = ""


@dataclass
class Played:
    """What became of one view: rows after every epoch (the first is its creation) and the rest.

    `wrong` tells of every epoch where it differs. One that `failed` with an error is dropped.
    """

    query: Query
    reasons: tuple[str, ...]
    rows: list[int] = field(default_factory=list)
    modes: list[str] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    changed: int = 0
    wrong: list[str] = field(default_factory=list)
    failed: bool = False


def play(
    engine: Engine,
    schema: str,
    queries: Sequence[Query],
    epochs: Iterable[Sequence[str]],
    oracle: Oracle,
    clock: Counter[str],
) -> dict[str, Played]:
    """Create the views of `queries`, run the statements of each epoch, advance and compare.

    Statements run in Spark and in DuckDB. `clock` learns the seconds by kind of work.
    """
    played = {query.name: Played(query, ()) for query in queries}
    with _timed(clock, "create"):
        engine.begin()
        for name, state in played.items():
            report = _defined(engine, f"{schema}.{name}", state)
            state.seconds.append(report.seconds if report else 0)
        engine.publish()
    with _timed(clock, "compare"):
        _compare(engine, schema, played, oracle, "at first")
    for number, statements in enumerate(epochs):
        with _timed(clock, "change"):
            for statement in statements:
                engine.spark.sql(statement)
                oracle.run(statement)
        with _timed(clock, "advance"):
            reports = _advance(engine, schema, played)
        for name, report in reports.items():
            state = played[name]
            state.modes.append(report.mode)
            state.seconds.append(report.seconds)
            state.changed += report.rows_inserted + report.rows_deleted
        with _timed(clock, "compare"):
            _compare(engine, schema, played, oracle, f"after epoch {number + 1}")
    return played


def _advance(engine: Engine, schema: str, played: dict[str, Played]) -> dict[str, TableReport]:
    """One epoch over all views; when one of them fails, an epoch for each, without that one."""
    going = {name: state for name, state in played.items() if not state.failed}
    try:
        tables = engine.advance().tables
        return {name: tables[f"{schema}.{name}"] for name in going}
    except Exception:  # noqa: BLE001 - which view it was is found below
        reports = {n: _defined(engine, f"{schema}.{n}", state) for n, state in going.items()}
        return {name: report for name, report in reports.items() if report is not None}


def _defined(engine: Engine, view: str, state: Played) -> TableReport | None:
    """Bring a view up to date by defining it; None when that fails."""
    try:
        state.reasons = engine.compile(state.query.sql).reasons
        return engine.create_materialized_view(view, state.query.sql)
    except Exception as error:  # noqa: BLE001 - one view must not hide the others
        state.failed = True
        state.wrong.append(f"{type(error).__name__}: {str(error).splitlines()[0]}")
        if engine.queries.knows(view):
            engine.drop(view)
        return None


@contextmanager
def _timed(clock: Counter[str], what: str) -> Iterator[None]:
    started = time.perf_counter()
    yield
    clock[what] += time.perf_counter() - started


def _compare(
    engine: Engine, schema: str, played: dict[str, Played], oracle: Oracle, when: str
) -> None:
    for name, state in played.items():
        if state.failed:
            continue
        view = f"{schema}.{name}"
        if state.query.oracle:
            ours = _rows(engine, view)
            found = differences(ours, oracle.run(state.query.oracle))
            state.rows.append(len(ours))
        else:
            found = [str(row) for row in engine.verify(view)]
            state.rows.append(engine.sql(f"SELECT * FROM {view}").count())
        if found:
            state.wrong.append(f"{when}, {len(found)} rows: " + "; ".join(found[:3]))


def _rows(engine: Engine, view: str) -> list[tuple[Any, ...]]:
    """The rows of a view; times are UTC without saying so, as in DuckDB."""
    table = engine.sql(f"SELECT * FROM {view}").toArrow()
    columns = []
    for column in table.columns:
        if pa.types.is_timestamp(column.type) and column.type.tz:
            column = column.cast(pa.timestamp("us", "UTC")).cast(pa.timestamp("us"))  # noqa: PLW2901
        columns.append(column.to_pylist())
    return list(zip(*columns, strict=True))


def lines(title: str, played: Iterable[Played], clock: Counter[str]) -> list[str]:
    """The table that ends a run: one line a view.

    A letter an epoch: its mode's first, a(ppend), i(ncremental), f(ull) or n(oop).
    """
    shown = [title, f"{'view':<9}{'rows':>12}{'changed':>9}{'s/epoch':>9}  epochs, and why full"]
    total: Counter[str] = Counter()
    for state in played:
        total.update(state.modes)
        low, high = min(state.rows, default=0), max(state.rows, default=0)
        rows = f"{low}" if low == high else f"{low}-{high}"
        mean = sum(state.seconds[1:]) / max(1, len(state.seconds) - 1)
        modes = "".join(mode[0] for mode in state.modes)
        notes = [
            *(() if state.query.oracle else ("compared with Spark itself",)),
            *((f"WRONG: {state.wrong[0][:90]}",) if state.wrong else ()),
            *state.reasons,
        ]
        shown.append(
            f"{state.query.name:<9}{rows:>12}{state.changed:>9}{mean:>9.2f}  {modes}  "
            + "; ".join(notes)
        )
    spent = ", ".join(f"{what} {seconds:.0f}" for what, seconds in clock.items())
    return [*shown, f"view-epochs: {dict(sorted(total.items()))}; seconds: {spent}"]
