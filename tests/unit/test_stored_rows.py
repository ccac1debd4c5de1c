"""Rows of small views that stay in the process: what is others, and what is known afterwards."""

from __future__ import annotations

import math
import random
import zlib
from collections import Counter

import pyarrow as pa
import pytest

from dbt_streamsql.plan.algebra.schema import WEIGHT
from dbt_streamsql.runtime.core.stored_rows import (
    FILE,
    POSITION,
    KnownRows,
    StoredRows,
)

COLUMNS = {"k": pa.int64(), "f": pa.float64(), "t": pa.string()}


def table(rows):
    columns = zip(*rows, strict=True) if rows else [()] * len(COLUMNS)
    arrays = [pa.array(list(c), kind) for c, kind in zip(columns, COLUMNS.values(), strict=True)]
    return pa.table(dict(zip(COLUMNS, arrays, strict=True)))


def stored(rows, file=7):
    data = table(rows).append_column(FILE, pa.array([file] * len(rows), pa.int64()))
    return StoredRows(data.append_column(POSITION, pa.array(range(len(rows)), pa.int64())))


def told(row):
    """Values of which those that Spark takes for equal are equal here."""
    return tuple("NaN" if isinstance(v, float) and math.isnan(v) else v for v in row)


def rows_of(data):
    return [told(row) for row in zip(*(data.column(n).to_pylist() for n in COLUMNS), strict=True)]


def drawn(rng, most):
    values = [None, 0.0, -0.0, 1.5, math.nan]
    texts = [None, "", "a", "ä"]
    return [
        (rng.choice([None, 1, 2]), rng.choice(values), rng.choice(texts))
        for _ in range(rng.randrange(most))
    ]


@pytest.mark.parametrize("seed", range(40))
def test_what_is_others_is_what_a_multiset_says_and_is_known_afterwards(seed):
    rng = random.Random(seed)
    before = drawn(rng, 30)
    held = stored(before)
    for number in range(5):
        wanted = drawn(rng, 30)
        found = held.difference(table(wanted))
        change = Counter()
        weights = found.change.column(WEIGHT).to_pylist()
        for row, weight in zip(rows_of(found.change), weights, strict=True):
            change[row] += weight
        expected = Counter(map(told, wanted))
        expected.subtract(Counter(map(told, before)))
        assert change == Counter({row: n for row, n in expected.items() if n})
        gone = held.rows.take(found.lost)
        assert Counter(rows_of(gone)) == Counter({r: -n for r, n in expected.items() if n < 0})
        come = [
            row for row, n in zip(rows_of(found.change), weights, strict=True) for _ in range(n)
        ]
        real = [tuple(math.nan if v == "NaN" else v for v in row) for row in come]
        held = held.after(found.lost, table(real), f"/f{number}.parquet")
        assert Counter(rows_of(held.rows)) == Counter(map(told, wanted))
        before = wanted


def test_new_rows_lie_in_their_file_in_their_order():
    held = stored([(1, 1.0, "a"), (2, 2.0, "b")])
    after = held.after(pa.array([0]), table([(3, 3.0, "c"), (4, 4.0, "d")]), "/new")
    places = list(
        zip(*(after.rows.column(n).to_pylist() for n in ("k", FILE, POSITION)), strict=True)
    )
    assert places == [(2, 7, 1), (3, zlib.crc32(b"/new"), 0), (4, zlib.crc32(b"/new"), 1)]


def test_rows_of_another_snapshot_or_by_another_schema_are_not_known():
    known, rows = KnownRows(1 << 20), stored([(1, 1.0, "a")])
    known.put("v", (5, 0), rows)
    assert known.get("v", (5, 0)) is rows
    assert known.get("v", (6, 0)) is known.get("v", (5, 1)) is known.get("w", (5, 0)) is None


def test_what_was_asked_for_long_ago_goes_first_and_what_is_too_big_is_not_kept():
    rows = stored([(n, 1.0, "a") for n in range(100)])
    known = KnownRows(4 * rows.size)
    for name in "abcd":
        known.put(name, (1, 0), rows)
    known.get("a", (1, 0))
    known.put("e", (1, 0), rows)
    assert [name for name in "abcde" if known.get(name, (1, 0))] == ["a", "c", "d", "e"]
    known.put("a", (2, 0), stored([(n, 1.0, "a") for n in range(101)]))
    assert known.get("a", (1, 0)) is known.get("a", (2, 0)) is None
