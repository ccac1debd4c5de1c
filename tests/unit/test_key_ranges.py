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

from tests.support.product import TempRelation, symbol

Rows = symbol("DriverRows", beside="rows_of")
ranges = symbol("ranges", beside="_clusters")

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
    ("keys", "where"),
    [
        ({"n": [7, 6, 8, 6]}, "x BETWEEN 6 AND 8"),
        ({"n": [7, -2, 8]}, "(x BETWEEN -2 AND -2 OR x BETWEEN 7 AND 8)"),
        ({"d": DAYS}, f"x BETWEEN {RANGE}"),
        ({"a_b": [1]}, "x BETWEEN 1 AND 1"),
        # A NULL asks for NULLs, and texts are compared with numbers in another order.
        ({"n": [1, None]}, ""),
        ({"n": []}, ""),
        ({"s": ["1"]}, ""),
    ],
)
def test_rows_that_are_asked_for_lie_within_the_ranges_of_the_keys(keys, where):
    (key,) = keys
    assert ranges("x", _keys(**keys), key.replace("_", " "), nulls=True) == where


def test_a_null_that_matches_nothing_does_not_widen_the_range():
    assert ranges("x", _keys(n=[1, None]), "n") == "x BETWEEN 1 AND 1"


def test_keys_that_the_driver_does_not_know_have_no_range():
    assert ranges("x", TempRelation(5, lambda _: "streamsql_1"), "n") == ""


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=60))
def test_every_value_is_in_one_of_a_few_ranges_which_have_no_wide_gap(values):
    text = ranges("x", _keys(n=values), "n")
    found = [tuple(map(int, each)) for each in re.findall(r"BETWEEN (-?\d+) AND (-?\d+)", text)]
    assert 1 <= len(found) <= 8
    assert found == sorted(found)
    for value in values:
        assert sum(low <= value <= high for low, high in found) == 1
    assert {end for each in found for end in each} <= set(values)
