"""Constraints of a contract, verified on rows that no reader can see yet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dbt_streamsql.errors import Place, StreamSqlError
from dbt_streamsql.quoting import quote

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KINDS = ("not_null", "check", "unique", "primary_key")


@dataclass(frozen=True)
class Constraint:
    """`kind` is one of KINDS; `expression` is the condition of a check.

    As in SQL: a check that is NULL holds, NULLs are never equal in a unique key, and a primary
    key has none.
    """

    kind: str
    columns: tuple[str, ...] = ()
    expression: str = ""
    name: str = ""

    def __str__(self) -> str:
        text = f"{self.kind} ({self.expression or ', '.join(self.columns)})"
        return f"{self.name}: {text}" if self.name else text

    @property
    def broken(self) -> str:
        """The condition under which a row alone breaks it ('' when a row alone cannot)."""
        if self.kind == "check":
            return f"NOT coalesce(({self.expression}), true)"
        if self.kind == "unique":
            return ""
        return " OR ".join(f"{quote(column)} IS NULL" for column in self.columns)

    @property
    def is_key(self) -> bool:
        return self.kind in ("unique", "primary_key")


def verify(spark: SparkSession, rows: str, constraints: Sequence[Constraint], table: str) -> None:
    """Raise CONSTRAINT_VIOLATED when `rows` (SQL after FROM) break one of the constraints.

    One query for all constraints that a row can break alone, one for each key.
    """
    alone = [constraint for constraint in constraints if constraint.broken]
    if alone:
        counts = ", ".join(f"count_if({c.broken})" for c in alone)
        found = spark.sql(f"SELECT {counts} FROM {rows}").collect()[0]
        for constraint, count in zip(alone, found, strict=True):
            if count:
                example = f"SELECT * FROM {rows} WHERE {constraint.broken} LIMIT 1"
                raise _violated(spark, constraint, count, example, table)
    for key in (constraint for constraint in constraints if constraint.is_key):
        columns = ", ".join(quote(column) for column in key.columns)
        known = " AND ".join(f"{quote(column)} IS NOT NULL" for column in key.columns)
        twice = (
            f"SELECT {columns}, count(*) AS `rows` FROM {rows} WHERE {known} "
            f"GROUP BY {columns} HAVING count(*) > 1"
        )
        count = spark.sql(f"SELECT coalesce(sum(`rows`), 0) FROM ({twice})").collect()[0][0]
        if count:
            raise _violated(spark, key, count, f"{twice} LIMIT 1", table)


def _violated(
    spark: SparkSession, constraint: Constraint, count: int, example: str, table: str
) -> StreamSqlError:
    from dbt_streamsql.storage.columns import collected

    row = collected(spark.sql(example))[0].asDict()
    shown = ", ".join(f"{name} = {_shown(value)}" for name, value in row.items())
    return StreamSqlError(
        "CONSTRAINT_VIOLATED",
        f"{count} {'row breaks' if count == 1 else 'rows break'} the constraint {constraint}",
        given=shown[:500],
        hint="correct the query or the constraint; the table is unchanged",
        place=Place(table),
    )


def _shown(value: Any) -> str:
    if value is None:
        return "NULL"
    return repr(value) if isinstance(value, str) else str(value)
