"""Stored rows that the process has are found and combined as Spark would do it."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from datetime import date, datetime, timezone
from decimal import Decimal

import pyarrow as pa
import pytest

from dbt_streamsql.plan.program.steps import Component, Derived, Fold
from dbt_streamsql.runtime.core.stored_rows import FILE, POSITION, StoredRows
from dbt_streamsql.runtime.write import held_rows

ADD = (
    Component("n", "add", "bigint"),
    Component("c", "add", "bigint"),
    Component("total", "add", "bigint", null_when_zero="c"),
)
SPEC = Fold("g", ("k", "l"), ADD, (), "n")
TYPES = {"k": "string", "l": "int", "n": "bigint", "c": "bigint", "total": "bigint"}
COLUMNS = ("k", "l", "n", "c", "total")
SCHEMA = pa.schema(
    [("k", pa.string()), ("l", pa.int32()), *((name, pa.int64()) for name in COLUMNS[2:])]
)


def held(rows, schema=SCHEMA):
    """Rows as they are stored."""
    data = pa.Table.from_pylist(
        [dict(zip(schema.names, row, strict=True)) for row in rows], schema
    )
    numbers = pa.array(range(len(rows)), pa.int64())
    return StoredRows(data.append_column(FILE, numbers).append_column(POSITION, numbers))


def table(rows, schema=SCHEMA):
    return pa.Table.from_pylist(
        [dict(zip(schema.names, row, strict=True)) for row in rows], schema
    )


def summed(old, change):
    """The group after a change, as SQL says it; None when it is gone."""
    n, c, total = (a + b for a, b in zip(old, change, strict=True))
    return (n, c, None if c == 0 else total) if n > 0 else None


@pytest.mark.parametrize("seed", range(40))
def test_groups_are_combined_as_sql_says(seed):
    rng = random.Random(seed)
    keys = [(k, n) for k in ("a", "b", "", None) for n in (0, 1, None)]
    groups = {key: (rng.randint(1, 3), rng.randint(0, 3), 5) for key in keys if rng.random() < 0.6}
    stored = [(*key, n, c, None if c == 0 else t) for key, (n, c, t) in groups.items()]
    changes = {
        key: (rng.randint(-2, 2), rng.choice((0, 0, 1)), rng.randint(-3, 3))
        for key in keys
        if rng.random() < 0.6
    }
    rows = held(stored)
    changed = table([(*key, *change) for key, change in changes.items()])
    found = held_rows.fold(rows, changed, SPEC, COLUMNS, TYPES)
    left = [row for at, row in enumerate(stored) if at not in set(found.lost.to_pylist())]
    now = left + [tuple(row.values()) for row in found.come.to_pylist()]
    expected = {key: (*key, *row[2:]) for key, row in zip(groups, stored, strict=True)}
    for key, change in changes.items():
        n, c, total = groups.get(key, (0, 0, 0))
        group = summed((n, c, total if c else 0), change)
        expected.pop(key, None)
        if group is not None:
            expected[key] = (*key, *group)
    assert Counter(now) == Counter(expected.values())
    untouched = set(stored) & set(expected.values())
    assert not untouched & {tuple(row.values()) for row in found.come.to_pylist()}


@pytest.mark.parametrize(
    ("kind", "name", "values"),
    [
        (pa.string(), "string", ["a", "", None, "b"]),
        (pa.int8(), "tinyint", [1, None, 0, -1]),
        (pa.bool_(), "boolean", [True, None, False]),
        (pa.date32(), "date", [date(1970, 1, 1), None, date(2020, 2, 29)]),
        (
            pa.timestamp("us", "UTC"),
            "timestamp",
            [
                datetime(1970, 1, 1, tzinfo=timezone.utc),
                None,
                datetime(2026, 1, 1, 1, tzinfo=timezone.utc),
            ],
        ),
        (pa.decimal128(10, 2), "decimal(10,2)", [Decimal("0.00"), None, Decimal("1.50")]),
    ],
)
def test_rows_are_found_by_values_of_each_type_and_null_is_one(kind, name, values):
    schema = pa.schema([("v", kind)])
    assert held_rows.agree(["v"], {"v": name})
    rows = held([(value,) for value in values], schema)
    found = held_rows.met(rows, table([(value,) for value in values[1:]], schema), ["v"])
    pairs = dict(zip(found.asked.to_pylist(), found.stored.to_pylist(), strict=True))
    assert pairs == {at: at + 1 for at in range(len(values) - 1)}
    assert found.missing.to_pylist() == []
    nothing = held_rows.met(rows.__class__(rows.rows.slice(0, 0)), rows.rows.select(["v"]), ["v"])
    assert sorted(nothing.missing.to_pylist()) == list(range(len(values)))
    alone = held_rows.met(rows, table([(None,)], schema), ["v"])
    assert alone.stored.to_pylist() == [values.index(None)]


@pytest.mark.parametrize(
    "kind",
    ["double", "float", "array<int>", "struct<a:int>", "binary", "string collate UTF8_LCASE", ""],
)
def test_of_other_types_spark_says_what_is_equal(kind):
    assert not held_rows.agree(["v"], {"v": kind})


def test_every_copy_of_a_row_is_found():
    schema = pa.schema([("v", pa.int32())])
    found = held_rows.met(held([(1,), (1,), (2,)], schema), table([(1,)], schema), ["v"])
    assert found.asked.to_pylist() == [0, 0]
    assert sorted(found.stored.to_pylist()) == [0, 1]


@pytest.mark.parametrize(
    "spec",
    [
        Fold("g", ("k", "l"), ADD, (Derived("x", "{n}"),), "n"),
        Fold("g", ("k", "l"), ADD, (), "n", lacking=("c",)),
        Fold("g", ("k", "l"), ADD, (), "n", ttl=5),
        Fold("g", ("k", "l"), (*ADD[:2], Component("total", "least", "bigint")), (), "n"),
        Fold("g", ("k", "l"), (*ADD[:2], Component("total", "add", "double")), (), "n"),
        Fold("g", ("k", "l"), ADD, (), "other"),
    ],
)
def test_what_is_more_than_exact_sums_is_left_to_spark(spec):
    rows, change = held([("a", 1, 1, 1, 1)]), table([("a", 1, 1, 1, 1)])
    assert held_rows.fold(rows, change, spec, COLUMNS, TYPES) is None


def test_a_sum_that_overflows_is_left_to_spark():
    rows, change = held([("a", 1, 1, 1, 2**63 - 1)]), table([("a", 1, 0, 0, 1)])
    assert held_rows.fold(rows, change, SPEC, COLUMNS, TYPES) is None
    assert held_rows.fold(rows, table([("a", 1, 0, 0, 0)]), SPEC, COLUMNS, TYPES) is not None


def decimals(digits, scale):
    """The same groups, with a sum of decimals."""
    kind = f"decimal({digits},{scale})"
    parts = (*ADD[:2], Component("total", "add", kind, null_when_zero="c"))
    schema = SCHEMA.set(4, pa.field("total", pa.decimal128(digits, scale)))
    return replace(SPEC, components=parts), {**TYPES, "total": kind}, schema


@pytest.mark.parametrize("change", [(20, 4), (28, 4), (12, 0)])
def test_decimals_are_added_to_the_last_digit_of_the_stored_sum(change):
    spec, types, schema = decimals(38, 4)
    large = Decimal("1234567890123456789012345678901234.5678")
    rows = held([("a", 1, 3, 2, large), ("b", 1, 1, 0, None), ("c", 1, 1, 1, Decimal(5))], schema)
    changed = table(
        [("a", 1, 1, 1, Decimal(7)), ("b", 1, 0, 1, Decimal(-2)), ("c", 1, 0, -1, Decimal(-5))],
        schema.set(4, pa.field("total", pa.decimal128(*change))),
    )
    found = held_rows.fold(rows, changed, spec, COLUMNS, types)
    now = {row["k"]: row["total"] for row in found.come.to_pylist()}
    assert now == {
        "a": Decimal("1234567890123456789012345678901241.5678"),
        "b": Decimal(-2),
        "c": None,
    }
    assert found.come.schema.field("total").type == pa.decimal128(38, 4)


@pytest.mark.parametrize(
    ("stored", "added"),
    [
        (Decimal("999999.99"), Decimal("0.01")),
        (Decimal("-999999.99"), Decimal("-0.01")),
        (Decimal(1), Decimal("1000000.00")),
        (Decimal(1), Decimal("0.001")),
    ],
)
def test_a_sum_of_decimals_that_overflows_or_loses_digits_is_left_to_spark(stored, added):
    spec, types, schema = decimals(8, 2)
    wide = schema.set(4, pa.field("total", pa.decimal128(20, 3)))
    change = table([("a", 1, 0, 0, added)], wide)
    rows = held([("a", 1, 1, 1, stored)], schema)
    assert held_rows.fold(rows, change, spec, COLUMNS, types) is None


def test_the_one_group_of_a_global_aggregate_stays_when_its_rows_go():
    names, schema = COLUMNS[2:], pa.schema(list(SCHEMA)[2:])
    spec = replace(SPEC, key=(), alive="")
    types = {name: TYPES[name] for name in names}
    rows = held([(3, 2, 10)], schema)
    found = held_rows.fold(rows, table([(-3, -2, -10)], schema), spec, names, types)
    assert found.come.to_pylist() == [{"n": 0, "c": 0, "total": None}]
    assert found.lost.to_pylist() == [0]
    unmoved = held_rows.fold(rows, table([(0, 0, 0)], schema), spec, names, types)
    assert (unmoved.come.num_rows, len(unmoved.lost)) == (0, 0)


def test_two_stored_rows_of_a_group_are_left_to_spark():
    rows, change = held([("a", 1, 1, 1, 1)] * 2), table([("a", 1, 1, 0, 0)])
    assert held_rows.fold(rows, change, SPEC, COLUMNS, TYPES) is None
