"""Play a suite: views over tables that change, compared with an oracle after every epoch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from oracle import Oracle, differences

from dbt_streamsql import Engine


@dataclass(frozen=True)
class Query:
    """A view's query; `oracle` is DuckDB's text of it ('' = Spark's own answer is compared)."""

    name: str
    sql: str
    oracle: str = ""


@dataclass
class Played:
    """What became of one view: rows after every epoch (the first is its creation) and the rest."""

    query: Query
    reasons: tuple[str, ...]
    rows: list[int] = field(default_factory=list)
    modes: Counter[str] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)
    changed: int = 0
    wrong: list[str] = field(default_factory=list)


def play(
    engine: Engine,
    schema: str,
    queries: Sequence[Query],
    epochs: Iterable[Sequence[str]],
    oracle: Oracle,
) -> dict[str, Played]:
    """Create the views of `queries`, run the statements of each epoch, advance and compare.

    Statements run in Spark and in DuckDB.
    """
    played = {}
    engine.begin()
    for query in queries:
        name = f"{schema}.{query.name}"
        report = engine.create_materialized_view(name, query.sql)
        played[query.name] = Played(query, engine.compile(query.sql).reasons)
        played[query.name].seconds.append(report.seconds)
    engine.publish()
    _compare(engine, schema, played, oracle, "at first")
    for number, statements in enumerate(epochs):
        for statement in statements:
            engine.spark.sql(statement)
            oracle.run(statement)
        tables = engine.advance().tables
        for name, state in played.items():
            report = tables[f"{schema}.{name}"]
            state.modes[report.mode] += 1
            state.seconds.append(report.seconds)
            state.changed += report.rows_inserted + report.rows_deleted
        _compare(engine, schema, played, oracle, f"after epoch {number + 1}")
    return played


def _compare(
    engine: Engine, schema: str, played: dict[str, Played], oracle: Oracle, when: str
) -> None:
    for name, state in played.items():
        view = f"{schema}.{name}"
        if state.query.oracle:
            ours = [tuple(row) for row in engine.sql(f"SELECT * FROM {view}").collect()]
            found = differences(ours, oracle.run(state.query.oracle))
            state.rows.append(len(ours))
        else:
            found = [str(row) for row in engine.verify(view)]
            state.rows.append(engine.sql(f"SELECT * FROM {view}").count())
        if found:
            state.wrong.append(f"{when}, {len(found)} rows: " + "; ".join(found[:3]))


def lines(title: str, played: Iterable[Played]) -> list[str]:
    """The table that ends a run: one line a view."""
    shown = [title, f"{'view':<10}{'rows':>12}{'changed':>9}{'s/epoch':>9}  epochs, and why full"]
    total: Counter[str] = Counter()
    for state in played:
        total += state.modes
        low, high = min(state.rows), max(state.rows)
        rows = f"{low}" if low == high else f"{low}-{high}"
        mean = sum(state.seconds[1:]) / max(1, len(state.seconds) - 1)
        modes = ", ".join(f"{mode} {count}" for mode, count in sorted(state.modes.items()))
        by = "" if state.query.oracle else " [against Spark]"
        wrong = f" {len(state.wrong)} TIMES WRONG" if state.wrong else ""
        why = f": {'; '.join(state.reasons)}" if state.reasons else ""
        shown.append(
            f"{state.query.name:<10}{rows:>12}{state.changed:>9}{mean:>9.2f}  {modes}{by}{wrong}{why}"
        )
    return [*shown, f"view-epochs: {dict(sorted(total.items()))}"]
