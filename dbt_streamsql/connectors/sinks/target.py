"""What every kind of target provides: a check that it accepts deliveries, and each delivery."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from dbt_streamsql.plan.algebra.schema import HIDDEN_PREFIX

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BEFORE, AFTER = f"{HIDDEN_PREFIX}before", f"{HIDDEN_PREFIX}after"
"""Columns of a keyed change: the row before and after it, as structs (NULL: no row)."""
OPERATION = "_op"
"""The column of an unkeyed change: `+` for an inserted row, `-` for a deleted one."""


BAD_KEY, LOST_ROW = "STREAMSQL_SINK_KEY ", "STREAMSQL_SINK_LOST_ROW"
"""Markers in Spark's error when the rows are at fault: a row has no key, or two rows share one;
a row was deleted that the target cannot retract."""


def is_of_rows(error: Exception) -> bool:
    """Whether the rows are at fault, not the target."""
    return any(sign in str(error) for sign in (BAD_KEY, LOST_ROW))


@dataclass(frozen=True)
class Layout:
    """What a sink delivers: its name, the store whose barriers it counts by, its columns (name,
    Spark type), its key, and a fingerprint of what decides which records it gets."""

    sink: str
    store: str
    columns: tuple[tuple[str, str], ...]
    key: tuple[str, ...]
    fingerprint: str


@dataclass(frozen=True)
class Mark:
    """A target's progress: everything up to a barrier, of that fingerprint."""

    barrier: int
    fingerprint: str


@dataclass(frozen=True)
class Batch:
    """One delivery. `rows` have the key columns, BEFORE and AFTER for a keyed target, else the
    columns and OPERATION. `whole`: they are all rows, not changes. `few`: they may come to the
    driver."""

    rows: DataFrame
    whole: bool
    table: str
    barrier: int
    ended_at: float
    few: bool


class Delivery(Protocol):
    """A delivery in progress. Where the target can, nothing is visible until `publish`."""

    @property
    def mark(self) -> Mark | None:
        """The target's progress, where it stores that itself; else None."""

    def write(self, batch: Batch) -> None:
        """Write the rows to staging, or directly where the target has no staging."""

    def publish(self, barrier: int) -> None:
        """Make everything that was written visible at once."""


class Target(Protocol):
    """An external place that is maintained like a query over a table."""

    @property
    def name(self) -> str:
        """For messages: `table public.totals at db:5432/shop`; never a secret."""

    @property
    def identity(self) -> str:
        """The options that decide which records it gets, and where."""

    @property
    def is_keyed(self) -> bool:
        """Whether it gets one row per key, before and after."""

    @property
    def keeps_mark(self) -> bool:
        """Whether its progress is stored in it, together with the rows: exactly once."""

    @property
    def compares(self) -> bool:
        """Whether it can be given all rows again and finds what to change."""

    def check(self, spark: SparkSession, layout: Layout, *, first: bool) -> None:
        """Error: SINK_UNREACHABLE; SINK_REFUSED when it is not empty and this is the `first`
        delivery."""

    def begin(
        self, spark: SparkSession, layout: Layout, *, replaces: bool
    ) -> AbstractContextManager[Delivery]:
        """One delivery; where the target can, what was not published when the block ends is
        undone. `replaces`: existing rows that are not ours may be deleted.

        Errors: SINK_UNREACHABLE, SINK_REFUSED.
        """
