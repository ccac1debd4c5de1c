"""Find rows that differ, and rows that differ by more than rounding."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from pyspark.sql import Row

from dbt_streamsql.plan.algebra import likeness
from dbt_streamsql.plan.algebra.schema import WEIGHT, Column
from dbt_streamsql.quoting import quote

TOLERANCE = 1e-9
"""Two floating-point numbers this close (relative, absolute near 0) are the same sum."""


def signed(names: str, query: str, stored: str) -> str:
    """The rows of one relation minus those of another: a SELECT of `names` and the weight."""
    return (
        f"SELECT {names}, 1 AS {WEIGHT} FROM {query} "
        f"UNION ALL SELECT {names}, -1 AS {WEIGHT} FROM {stored}"
    )


def differing(columns: Sequence[Column], rows: str) -> str:
    """Consolidate signed rows, a SELECT of `columns` and the weight: a query of the rows with
    `_side`, `missing` for a positive weight and `surplus` for a negative one."""
    names, keys = likeness.grouped(columns)
    shown = ", ".join(quote(column.name) for column in columns)
    # The result of two EXCEPT ALLs, with each relation computed once.
    return (
        f"SELECT IF({WEIGHT} > 0, 'missing', 'surplus') AS _side, {shown} FROM ("
        f"SELECT {names}, sum({WEIGHT}) AS {WEIGHT} FROM ({rows}) "
        f"GROUP BY {keys} HAVING sum({WEIGHT}) <> 0"
        f") LATERAL VIEW explode(sequence(1, CAST(abs({WEIGHT}) AS INT))) AS _copy"
    )


def beyond_rounding(rows: Iterable[Row], floats: Collection[str]) -> list[Row]:
    """Drop pairs of `missing` and `surplus` rows that differ only in the last bits of `floats`.

    A sum of DOUBLEs depends on the order of addition: the same query, run twice, may differ.
    """
    sides: dict[str, dict[str, list[Row]]] = defaultdict(lambda: {"missing": [], "surplus": []})
    for row in rows:
        rest = [row[name] for name in row.__fields__ if name not in floats and name != "_side"]
        sides[repr(rest)][row["_side"]].append(row)
    left: list[Row] = []
    for group in sides.values():
        surplus = group["surplus"]
        for row in group["missing"]:
            twin = next((other for other in surplus if _near(row, other, floats)), None)
            if twin is None:
                left.append(row)
            else:
                surplus.remove(twin)
        left += surplus
    return left


def _near(one: Row, other: Row, floats: Collection[str]) -> bool:
    return all(_close(one[name], other[name]) for name in floats)


def _close(one: Any, other: Any) -> bool:
    if one is None or other is None:
        return one is other
    if math.isnan(one) or math.isnan(other):
        return math.isnan(one) and math.isnan(other)
    return math.isclose(one, other, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
