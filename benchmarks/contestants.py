"""The ways of bringing a change of the base table into an aggregate over it, one function each.

Each finds the rows of the change in the temporary view `BATCH`, in memory. What a contestant must
have ready (a copy of the view) is not timed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.data import BASE, BATCH, COPY, DELTA, FULL, PROPERTIES, QUERY, VIEW, World

_BRANCH = "ranged"
RANGED = "lake.bench.copy.branch_ranged"
_CHANGED = f"SELECT k, count(*) AS n, sum(v) AS total, sum(w) AS weight FROM {BATCH} GROUP BY k"
_CLAUSES = (
    "WHEN MATCHED THEN UPDATE SET t.n = t.n + s.n, t.total = t.total + s.total, "
    "t.weight = t.weight + s.weight WHEN NOT MATCHED THEN INSERT *"
)

Run = Callable[[World], str]


def append(world: World) -> str:
    """The unit: the rows of the change, appended to the base table."""
    world.spark.sql(f"INSERT INTO {BASE} SELECT k, v, w FROM {BATCH}")
    return ""


def epoch(world: World) -> str:
    """Our whole epoch: find what changed, compute, stage, publish, record, sweep."""
    return world.engine.advance().tables[VIEW].mode


def merge(world: World) -> str:
    """The MERGE that one writes by hand."""
    world.spark.sql(f"MERGE INTO {COPY} t USING ({_CHANGED}) s ON t.k = s.k {_CLAUSES}")
    return ""


def merge_ranged(world: World) -> str:
    """The same MERGE by someone who looks first which range of keys changed.

    It runs on a branch of the copy, which the plain MERGE then leaves behind.
    """
    low, high = world.spark.sql(f"SELECT min(k), max(k) FROM {BATCH}").collect()[0]
    world.spark.sql(
        f"MERGE INTO {RANGED} t USING ({_CHANGED}) s "
        f"ON t.k = s.k AND t.k BETWEEN :low AND :high {_CLAUSES}",
        args={"low": low, "high": high},
    )
    return ""


def merge_delta(world: World) -> str:
    """The hand-written MERGE into a Delta table with deletion vectors."""
    world.session_of(DELTA).sql(
        f"MERGE INTO {DELTA} t USING ({_CHANGED}) s ON t.k = s.k {_CLAUSES}"
    )
    return ""


def refresh(world: World) -> str:
    """What a dbt `table` does: the query from nothing."""
    world.spark.sql(
        f"CREATE OR REPLACE TABLE {FULL} USING iceberg TBLPROPERTIES ({PROPERTIES}) AS {QUERY}"
    )
    return ""


def open_branch(world: World) -> None:
    """Let the ranged MERGE start from what the plain one has."""
    world.spark.sql(f"ALTER TABLE {COPY} CREATE OR REPLACE BRANCH {_BRANCH}")


@dataclass(frozen=True)
class Contestant:
    """A way of doing it; `table` holds its result ('' when it has none to compare)."""

    name: str
    label: str
    run: Run
    table: str = ""
    prepare: Callable[[World], None] | None = None


ALL = (
    Contestant("append", "plain Iceberg append of the rows", append),
    Contestant("epoch", "this project: a whole epoch", epoch, VIEW),
    Contestant("ranged", "Iceberg MERGE with a key range", merge_ranged, RANGED, open_branch),
    Contestant("merge", "Iceberg MERGE", merge, COPY),
    Contestant("delta", "Delta MERGE", merge_delta, DELTA),
    Contestant("full", "full refresh", refresh, FULL),
)
"""In the order in which they run: the append is the change that the epoch finds."""
