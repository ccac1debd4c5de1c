"""What every kind of target gives: whether it can be delivered to, and one delivery at a time."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from dbt_streamsql.plan.schema import HIDDEN_PREFIX

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BEFORE, AFTER = f"{HIDDEN_PREFIX}before", f"{HIDDEN_PREFIX}after"
"""Columns of a keyed change: the row as it was and as it is, structures (NULL: there is none)."""
OPERATION = "_op"
"""The column of an unkeyed change: `+` the row came, `-` it went."""


BAD_KEY, LOST_ROW = "STREAMSQL_SINK_KEY ", "STREAMSQL_SINK_LOST_ROW"
"""What Spark's error says when the fault lies with the rows: a row has no key, or two rows have
one; a row went that the target cannot take back."""


def is_of_rows(error: Exception) -> bool:
    """Whether the fault lies with the rows, and not with the target."""
    return any(sign in str(error) for sign in (BAD_KEY, LOST_ROW))


@dataclass(frozen=True)
class Layout:
    """What a sink delivers: its name, the store whose barriers it counts by, its columns (name,
    Spark type) and its key, and what decides which records those are."""

    sink: str
    store: str
    columns: tuple[tuple[str, str], ...]
    key: tuple[str, ...]
    fingerprint: str


@dataclass(frozen=True)
class Mark:
    """How far a target says that it has come: everything up to a barrier, of that fingerprint."""

    barrier: int
    fingerprint: str


@dataclass(frozen=True)
class Batch:
    """One delivery. `rows` have the columns of the key, BEFORE and AFTER where the target is
    keyed, else the columns and OPERATION. `whole`: they are all rows, not changes."""

    rows: DataFrame
    whole: bool
    table: str
    barrier: int
    ended_at: float


class Delivery(Protocol):
    """One delivery that was begun. Where the target can, nothing is seen until `publish`."""

    @property
    def mark(self) -> Mark | None:
        """How far the target has come, where it keeps that itself; else None."""

    def write(self, batch: Batch) -> None:
        """Write the rows where nobody looks, or, where there is no such place, write them."""

    def publish(self, barrier: int) -> None:
        """Let all that was written be seen at once."""


class Target(Protocol):
    """A place outside that is kept like a query over a table."""

    @property
    def name(self) -> str:
        """For messages: `table public.totals at db:5432/shop`; never a secret."""

    @property
    def identity(self) -> str:
        """What of its options decides which records it gets, and where."""

    @property
    def is_keyed(self) -> bool:
        """Whether it is given one row for each key, before and after."""

    @property
    def keeps_mark(self) -> bool:
        """Whether how far it has come is stored in it, together with the rows: exactly once."""

    @property
    def compares(self) -> bool:
        """Whether it can be given all rows again: it finds out what is to change."""

    def check(self, spark: SparkSession, layout: Layout, *, first: bool) -> None:
        """Error: SINK_UNREACHABLE; SINK_REFUSED when it is not empty and this is the `first`
        delivery."""

    def begin(
        self, spark: SparkSession, layout: Layout, *, replaces: bool
    ) -> AbstractContextManager[Delivery]:
        """One delivery; what was not published when the block ends was never there, where the
        target can. `replaces`: what is there that is not ours may go.

        Errors: SINK_UNREACHABLE, SINK_REFUSED.
        """
