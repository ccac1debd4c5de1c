"""What every stream connector provides: how far it can be read, and the records up to there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from dbt_streamsql.plan.algebra.schema import HIDDEN_PREFIX

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Position = Mapping[str, Any]
"""How far a stream was read, as JSON; only its connector can interpret it."""

RAW, AT, PROBLEM = (f"{HIDDEN_PREFIX}{name}" for name in ("raw", "at", "problem"))
"""Columns of every record: its text, its place, and why it cannot be read (NULL: it can)."""

UNSENT = f"{HIDDEN_PREFIX}unsent"
"""An additional column of some sources: for an update, the names of the columns that it left as
they were and whose values were not sent. NULL in all other records. A reader without the values
cannot read such a record: PROBLEM says so, though its columns are given."""

AS_READ = f"{HIDDEN_PREFIX}as_read"
"""A column next to UNSENT: for any other record with a PROBLEM, a struct of all columns, as far as
they could be read; else NULL. It shows which key the record may have changed."""


class Closeable(Protocol):
    """A resource elsewhere: a transaction, for example."""

    def close(self) -> None: ...


@dataclass(frozen=True)
class End:
    """How far a stream can be read now.

    `records`: the number of new ones (None: unknown). `oldest`: when the oldest new one was
    written, seconds since 1970 (None: unknown). `held`: what must stay open while they are read.
    """

    position: Position
    records: int | None = None
    oldest: float | None = None
    held: Closeable | None = None


class Source(Protocol):
    """A stream that is read in batches. The same (after, upto] gives the same records."""

    @property
    def name(self) -> str:
        """For messages and lineage: `topic clicks at 127.0.0.1:9092`; never a secret."""

    def columns(self, spark: SparkSession) -> tuple[tuple[str, str], ...]:
        """(name, Spark type): what a model's SQL may select; the connector's start with `_`."""

    def end(self, spark: SparkSession, after: Position | None) -> End | None:
        """How far the records after a position go; None when there are none. See `end_of`.

        `after` None is the beginning, as the option `start` says. The option
        `max_records_per_barrier` bounds it.
        """

    def read(self, spark: SparkSession, after: Position | None, upto: Position) -> DataFrame:
        """The records after `after`, through `upto`: `columns`, then RAW, AT and PROBLEM.

        A record with a PROBLEM has NULL in all columns; where UNSENT names some, only in those.
        """

    def release(self, spark: SparkSession, upto: Position) -> None:
        """A barrier that read up to here is published. Most connectors do nothing."""


@contextmanager
def end_of(source: Source, spark: SparkSession, after: Position | None) -> Iterator[End | None]:
    """How far a source can be read now, as `Source.end` says. Closes what it holds."""
    end = source.end(spark, after)
    try:
        yield end
    finally:
        if end is not None and end.held is not None:
            end.held.close()


@dataclass(frozen=True)
class Omissions:
    """What the updates of a source may omit: `columns`, by name. `identity`: the columns by which
    the source itself identifies rows (None: it does not say)."""

    columns: tuple[str, ...]
    identity: tuple[str, ...] | None = None


@runtime_checkable
class Omitting(Protocol):
    """A source with ordered changes, whose updates may omit values."""

    def omissions(self, spark: SparkSession) -> Omissions | None:
        """None: nothing is omitted, or records may be missing in between, so that an older value
        proves nothing."""


@runtime_checkable
class Keeping(Protocol):
    """A source that keeps something elsewhere as long as it is read."""

    def forget(self) -> str:
        """Reading has ended: remove that. Returns what was removed, or stays and why, in words."""
