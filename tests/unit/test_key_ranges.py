"""Rows of an input that a few keys ask for lie within the ranges of the keys."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    DateType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from tests.support.product import TempRelation, symbol, within

Rows = symbol("DriverRows", beside="rows_of")

ASKED = "SELECT r.a FROM {t_after} r\n  LEFT SEMI JOIN {keys} k ON "
KINDS = {"n": LongType(), "d": DateType(), "a b": LongType(), "s": StringType()}
RANGE = "date_from_unix_date(18262) AND date_from_unix_date(18264)"
DAYS = [dt.date(2020, 1, 3), dt.date(2020, 1, 1)]


def _keys(**columns):
    fields = [StructField(name, KINDS[name.replace("_", " ")]) for name in columns]
    renamed = [StructField(f.name.replace("_", " "), f.dataType) for f in fields]
    table = pa.table({f.name: pa.array(v) for f, v in zip(renamed, columns.values(), strict=True)})
    rows = Rows(table, StructType(renamed))
    return TempRelation(table.num_rows, lambda _: "streamsql_1", rows)


@pytest.mark.parametrize(
    ("on", "keys", "where"),
    [
        ("r.x = k.n", {"n": [7, -2]}, "r.x BETWEEN -2 AND 7"),
        (
            "r.x <=> k.n AND r.`the day` = k.d",
            {"n": [3, 4], "d": DAYS},
            f"r.x BETWEEN 3 AND 4 AND r.`the day` BETWEEN {RANGE}",
        ),
        ("r.x = k.`a b`", {"a_b": [1]}, "r.x BETWEEN 1 AND 1"),
        # A NULL asks for NULLs, and texts are compared with numbers in another order.
        ("r.x <=> k.n", {"n": [1, None]}, ""),
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
