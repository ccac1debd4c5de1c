"""The same tables and queries in DuckDB, and the comparison of two answers.

Answers are bags of rows. Equal means: integers, decimals, texts, dates and times exactly; floating
point numbers within 1e-9, relative. DuckDB divides decimals, and averages them, as floating point
numbers where Spark rounds to the scale of a decimal type: such a pair may differ by half a unit of
that scale.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any

import duckdb

TOLERANCE = 1e-9
AVERAGE = "spark_avg"
"""A macro: AVG of DECIMAL(15,2) with the type and the rounding that it has in Spark."""

Rows = Sequence[tuple[Any, ...]]


class Oracle:
    """A DuckDB in memory whose catalog is called as Spark's, so that names of tables are the same."""

    def __init__(self, schema: str) -> None:
        self._connection = duckdb.connect()
        self.run("ATTACH ':memory:' AS lake")
        self.run(f"CREATE SCHEMA {schema}")
        self.run(
            f"CREATE MACRO {AVERAGE}(x) AS CAST(round(sum(x) / count(x), 6) AS DECIMAL(19,6))"
        )

    def run(self, sql: str) -> list[tuple[Any, ...]]:
        return self._connection.execute(sql).fetchall()

    def close(self) -> None:
        self._connection.close()


def differences(ours: Rows, theirs: Rows) -> list[str]:
    """The rows without an equal in the other answer, as text; [] when the bags are equal."""
    inexact = {
        place
        for rows in (ours, theirs)
        for row in rows
        for place, value in enumerate(row)
        if isinstance(value, float)
    }
    left, right = _split(ours, inexact), _split(theirs, inexact)
    found = []
    for exact in {**left, **right}:
        others = list(right.get(exact, ()))
        for row in left.get(exact, ()):
            twin = next((other for other in others if _near(row, other)), None)
            if twin is None:
                found.append(f"only in the view: {exact} {row}")
            else:
                others.remove(twin)
        found += [f"only in DuckDB: {exact} {row}" for row in others]
    return found


def _split(rows: Rows, inexact: Iterable[int]) -> dict[tuple[Any, ...], list[tuple[Any, ...]]]:
    """Rows by their exact values, what may be rounded apart and in order."""
    split: dict[tuple[Any, ...], list[tuple[Any, ...]]] = defaultdict(list)
    for row in rows:
        exact = tuple(value for place, value in enumerate(row) if place not in inexact)
        split[exact].append(tuple(row[place] for place in sorted(inexact)))
    for rest in split.values():
        rest.sort(key=lambda values: [(value is None, value or 0) for value in values])
    return split


def _near(one: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    return all(_close(a, b) for a, b in zip(one, other, strict=True))


def _close(one: Any, other: Any) -> bool:
    if one is None or other is None:
        return one is other
    if math.isnan(one) or math.isnan(other):
        return math.isnan(one) and math.isnan(other)
    half = max(_half_unit(one), _half_unit(other))
    a, b = float(one), float(other)
    return abs(a - b) <= half + TOLERANCE * max(abs(a), abs(b), 1e-3)


def _half_unit(value: Any) -> float:
    if not isinstance(value, Decimal):
        return 0.0
    exponent = value.as_tuple().exponent
    assert isinstance(exponent, int)
    return 0.5 * 10.0**exponent
