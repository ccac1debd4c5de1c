"""Rows of an input that a few keys ask for lie within the ranges of the keys."""

from __future__ import annotations

import datetime as dt
import re

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import (
    DateType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from tests.support.product import TempRelation, symbol, within

Rows = symbol("DriverRows", beside="rows_of")
ranges = symbol("ranges", beside="within")

ASKED = "SELECT r.a FROM {t_after} r\n  LEFT SEMI JOIN {keys} k ON "
KINDS = {"n": LongType(), "d": DateType(), "a b": LongType(), "s": StringType()}
RANGE = "date_from_unix_date(18262) AND date_from_unix_date(18263)"
DAYS = [dt.date(2020, 1, 2), dt.date(2020, 1, 1)]


def _keys(**columns):
    fields = [StructField(name, KINDS[name.replace("_", " ")]) for name in columns]
    renamed = [StructField(f.name.replace("_", " "), f.dataType) for f in fields]
    table = pa.table({f.name: pa.array(v) for f, v in zip(renamed, columns.values(), strict=True)})
    rows = Rows(table, StructType(renamed))
    return TempRelation(table.num_rows, lambda _: "streamsql_1", rows)


@pytest.mark.parametrize(
    ("on", "keys", "where"),
    [
        ("r.x = k.n", {"n": [7, 6, 8, 6]}, "r.x BETWEEN 6 AND 8"),
        (
            "r.x = k.n",
            {"n": [7, -2, 8]},
            "(r.x BETWEEN -2 AND -2 OR r.x BETWEEN 7 AND 8)",
        ),
        (
            "r.x <=> k.n AND r.`the day` = k.d",
            {"n": [3, 4], "d": DAYS},
            f"r.x BETWEEN 3 AND 4 AND r.`the day` BETWEEN {RANGE}",
        ),
        ("r.x = k.`a b`", {"a_b": [1]}, "r.x BETWEEN 1 AND 1"),
        # A NULL asks for NULLs, and texts are compared with numbers in another order.
        ("r.x <=> k.n", {"n": [1, None]}, ""),
        ("r.x <=> k.n", {"n": []}, ""),
        ("r.x = k.s", {"s": ["1"]}, ""),
        ("r.x = k.n AND r.y <=> k.s", {"n": [1], "s": ["x"]}, "r.x BETWEEN 1 AND 1"),
    ],
)
def test_rows_that_are_asked_for_lie_within_the_range_of_the_keys(on, keys, where):
    text = f"{ASKED}{on}\n) t"
    found = within(text, {"keys": _keys(**keys)}.get)
    assert found == f"{ASKED}{on}{' WHERE ' + where if where else ''}\n) t"


def test_the_range_stands_within_the_brackets_of_a_side_of_a_union():
    side = "(SELECT r.a FROM {t} r\nLEFT SEMI JOIN {keys} k ON r.a <=> k.n AND r.b <=> k.d"
    found = within(f"{side})\nUNION ALL\n{side})", {"keys": _keys(n=[1, 2], d=DAYS)}.get)
    where = f" WHERE r.a BETWEEN 1 AND 2 AND r.b BETWEEN {RANGE}"
    assert found == f"{side}{where})\nUNION ALL\n{side}{where})"


def test_keys_that_the_driver_does_not_know_have_no_range():
    text = f"{ASKED}r.x = k.n"
    assert within(text, lambda _: None) == text
    assert within(text, lambda _: TempRelation(5, lambda _: "streamsql_1")) == text


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=60))
def test_every_value_is_in_one_of_a_few_ranges_which_have_no_wide_gap(values):
    text = ranges("x", _keys(n=values), "n")
    found = [tuple(map(int, each)) for each in re.findall(r"BETWEEN (-?\d+) AND (-?\d+)", text)]
    assert 1 <= len(found) <= 8
    assert found == sorted(found)
    for value in values:
        assert sum(low <= value <= high for low, high in found) == 1
    assert {end for each in found for end in each} <= set(values)
