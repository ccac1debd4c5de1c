"""Rows that differ by more than rounding."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable
from typing import Any

from pyspark.sql import Row

TOLERANCE = 1e-9
"""Two floating point numbers this near (relative, absolute near 0) are the same sum."""


def beyond_rounding(rows: Iterable[Row], floats: Collection[str]) -> list[Row]:
    """Drop `missing` and `surplus` rows that are pairs but for the last bits of `floats` columns.

    A sum of DOUBLEs depends on the order of addition: the query itself, asked twice, may differ.
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
