"""Write docs/spark_functions.md: how each built-in function of Spark is maintained."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path

from dbt_streamsql.compiler.binding.aggregate_calls import UNSTABLE
from dbt_streamsql.compiler.parsing.builtin_functions import (
    AGGREGATES,
    GENERATORS,
    VOLATILE,
    WINDOWS,
)
from dbt_streamsql.engine import Engine

FILE = Path(__file__).parents[1] / "docs" / "spark_functions.md"
FOLDED = frozenset(
    [
        *("any", "any_value", "avg", "bool_and", "bool_or", "count", "count_if", "every", "first"),
        *("first_value", "last", "last_value", "max", "mean", "min", "some", "sum"),
    ]
)
CLOCKS = frozenset(["curdate", "current_date", "current_timestamp", "now"])
_HEAD = """# Spark's functions

How each built-in function of Spark {version} is maintained. `python scripts/spark_functions.py`
writes this page, and a test compares it with the installed Spark. For the meaning of the kinds,
see [materialized_view](materialized_view.md#what-is-maintained-from-changes).

| kind | maintained | functions |
|---|---|---|
"""
_FOOT = """
All other functions of Spark ({count}) compute one value from one row, and it is always the same:
they run over the changed rows, wherever they occur in the query, as the query writes them.
"""


def page(version: str, builtin: Iterable[str]) -> str:
    """The page for a Spark that has these functions."""
    known = {name for name in builtin if name.isidentifier()}
    last = {name for name in known & AGGREGATES if any(part in name for part in UNSTABLE)}
    kinds = (
        ("sums", "added to the stored groups, or to their old values", FOLDED),
        ("aggregates", "the touched groups are recomputed", AGGREGATES - FOLDED - last),
        ("aggregates with several correct results", "as the last step of a view", last),
        ("window functions", "the touched partitions are recomputed", WINDOWS),
        ("row generators", "joined to the row from which they are generated", GENERATORS),
        ("clocks", "in `WHERE` and `HAVING`: the time of the barrier; otherwise in full", CLOCKS),
        ("a different value at each call, or external input", "in full", VOLATILE - CLOCKS),
    )
    rows, told = [], set[str]()
    for kind, how, names in kinds:
        shown = sorted(names & known)
        told |= set(shown)
        rows.append(f"| {kind} | {how} | {', '.join(f'`{name}`' for name in shown)} |")
    head = _HEAD.format(version=version)
    return head + "\n".join(rows) + "\n" + _FOOT.format(count=len(known - told))


def of(engine: Engine) -> str:
    """The page for the Spark of an engine."""
    rows = engine.spark.sql("SHOW SYSTEM FUNCTIONS").collect()
    return page(".".join(engine.spark.version.split(".")[:2]), [row[0].lower() for row in rows])


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        engine = Engine.open(folder)
        FILE.write_text(of(engine), encoding="utf-8")
        engine.close()


if __name__ == "__main__":
    main()
