"""What every connector of a stream gives: how far it can be read, and the records up to there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from dbt_streamsql.plan.schema import HIDDEN_PREFIX

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Position = Mapping[str, Any]
"""How far a stream was read, as JSON; only its connector knows what it means."""

RAW, AT, PROBLEM = (f"{HIDDEN_PREFIX}{name}" for name in ("raw", "at", "problem"))
"""Columns of every record: its text, where it was, and why it cannot be read (NULL: it can)."""

UNSENT = f"{HIDDEN_PREFIX}unsent"
"""A column that some sources give beside them: of an update, the names of the columns that it left
as they were and whose values were not sent. NULL in all other records. To who does not know the
values such a record cannot be read: PROBLEM says so, though its columns are given."""

AS_READ = f"{HIDDEN_PREFIX}as_read"
"""A column beside UNSENT: of any other record with a PROBLEM a struct of all columns, as far as
they could be read; else NULL. It serves to tell which key the record may have changed."""


@dataclass(frozen=True)
class End:
    """How far a stream can be read now.

    `records`: how many are new (None: not known). `oldest`: when the oldest new one was written,
    seconds since 1970 (None: not known).
    """

    position: Position
    records: int | None = None
    oldest: float | None = None


class Source(Protocol):
    """A stream that is read in batches. The same (after, upto] gives the same records."""

    @property
    def name(self) -> str:
        """For messages and lineage: `topic clicks at 127.0.0.1:9092`; never a secret."""

    def columns(self, spark: SparkSession) -> tuple[tuple[str, str], ...]:
        """(name, Spark type): what a model's SQL may select; the connector's start with `_`."""

    def end(self, spark: SparkSession, after: Position | None) -> End | None:
        """How far the records after a position go; None when there are none.

        `after` None is the beginning, as the option `start` says. The option
        `max_records_per_barrier` bounds it.
        """

    def read(self, spark: SparkSession, after: Position | None, upto: Position) -> DataFrame:
        """The records after `after`, up to and with `upto`: `columns`, then RAW, AT and PROBLEM.

        A record with a PROBLEM has NULL in all columns; where UNSENT tells some, only in those.
        """

    def release(self, spark: SparkSession, upto: Position) -> None:
        """A barrier that read up to here is published. Most connectors have nothing to do."""


@dataclass(frozen=True)
class Omissions:
    """What the updates of a source may leave out: `columns`, by name. `identity`: the columns by
    which the source itself tells rows apart (None: it does not say)."""

    columns: tuple[str, ...]
    identity: tuple[str, ...] | None = None


@runtime_checkable
class Omitting(Protocol):
    """A source with changes in order, of which updates may leave values out."""

    def omissions(self, spark: SparkSession) -> Omissions | None:
        """None: nothing is left out, or records may be missing between two others, so that an
        older value says nothing."""


@runtime_checkable
class Keeping(Protocol):
    """A source for which something is kept elsewhere as long as somebody reads it."""

    def forget(self) -> str:
        """Nobody will read on: remove that. What was removed, or stays and why, in words."""
