"""What the compiler needs to know about tables, types and functions; the runtime asks Spark."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from dbt_streamsql.plan.algebra.schema import Column
from dbt_streamsql.quoting import TableName


@dataclass(frozen=True)
class TableInfo:
    """A table with its visible columns; a view has its text and the place its names resolve from.

    `versioned` is false for a table without snapshots: only its current version can be read, and
    `unversioned` says why, if there is more to say. `bare`: a version of it has its columns and no
    hidden ones of Spark. `fields` has the fields of all levels with their ids: a column that was
    dropped and added again, or swapped for another, is another column under the same name.
    `unique`: columns in which no two rows of a maintained table have the same value, NULLs aside.
    """

    name: TableName
    columns: tuple[Column, ...]
    versioned: bool = True
    view_sql: str = ""
    view_catalog: str = ""
    view_schema: str = ""
    fields: str = ""
    unversioned: str = ""
    bare: bool = False
    unique: tuple[str, ...] = ()


class Catalog(Protocol):
    """Read-only knowledge about the warehouse."""

    default_catalog: str

    def table(self, name: TableName) -> TableInfo:
        """Raise TABLE_MISSING when there is none."""

    def schema(self, sql: str) -> tuple[Column, ...]:
        """The columns of a query by Spark's own analysis; SQL_INVALID when Spark refuses it."""

    def functions(self) -> frozenset[str]:
        """Lower-case names of Spark's built-in functions; anything else is a user's function."""

    def loses_overflow(self) -> bool:
        """Whether a sum that overflows its type is NULL: without ANSI mode; else an error."""
