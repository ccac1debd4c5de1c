"""Z-sets: bags of rows with signed weights, and the operators of views over them.

The executable meaning of the engine: a few lines of Python that say what each operator computes,
on whole tables and on changes alike. Rows are tuples, NULL is None. A table has positive weights
only; a change says by +n and -n how often a row appears and disappears.

>>> old, new = zset([("a", 1), ("b", 2)]), zset([("a", 1), ("b", 3)])
>>> sorted(subtract(new, old).items())
[(('b', 2), -1), (('b', 3), 1)]
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable

Row = tuple[Hashable, ...]
ZSet = dict[Row, int]


def zset(rows: Iterable[Row]) -> ZSet:
    """A bag of rows, each with weight one for every time it occurs."""
    return add({row: 1} for row in rows)


def add(parts: Iterable[ZSet]) -> ZSet:
    """The sum; weights that cancel leave nothing (consolidation)."""
    total: dict[Row, int] = defaultdict(int)
    for part in parts:
        for row, weight in part.items():
            total[row] += weight
    return {row: weight for row, weight in total.items() if weight}


def negate(part: ZSet) -> ZSet:
    return {row: -weight for row, weight in part.items()}


def subtract(new: ZSet, old: ZSet) -> ZSet:
    """The change from `old` to `new`."""
    return add([new, negate(old)])


def select(part: ZSet, keep: Callable[[Row], bool], make: Callable[[Row], Row]) -> ZSet:
    """Filter and projection. Linear: `select(a + b) = select(a) + select(b)`.

    >>> select({("a", 1): 2, ("b", 5): -1}, lambda r: r[1] > 1, lambda r: (r[0],))
    {('b',): -1}
    """
    return add({make(row): weight} for row, weight in part.items() if keep(row))


def join(left: ZSet, right: ZSet, on: Callable[[Row, Row], bool]) -> ZSet:
    """Inner join. Bilinear: weights multiply.

    >>> join({("a",): 2}, {("a",): -1}, lambda l, r: l == r)
    {('a', 'a'): -2}
    """
    return add(
        {mine + other: weight * times}
        for mine, weight in left.items()
        for other, times in right.items()
        if on(mine, other)
    )


def group(
    part: ZSet, key: Callable[[Row], Row], aggregate: Callable[[list[tuple[Row, int]]], Row]
) -> ZSet:
    """GROUP BY: one row a key that has rows; not linear, but each group stands alone.

    >>> group({("a", 1): 1, ("a", 2): 3}, lambda r: r[:1], lambda rows: (sum(w for _, w in rows),))
    {('a', 4): 1}
    """
    groups: dict[Row, list[tuple[Row, int]]] = defaultdict(list)
    for row, weight in part.items():
        groups[key(row)].append((row, weight))
    return add({at + aggregate(rows): 1} for at, rows in groups.items() if sum(w for _, w in rows))


def restrict(part: ZSet, key: Callable[[Row], Row], keys: set[Row]) -> ZSet:
    """The rows whose key is one of `keys`."""
    return {row: weight for row, weight in part.items() if key(row) in keys}
