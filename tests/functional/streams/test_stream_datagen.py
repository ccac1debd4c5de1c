"""Made-up records: a function of the seed and their number, that come at their time."""

from __future__ import annotations

import random
import time

import pytest

from dbt_streamsql.errors import StreamSqlError
from tests.support.streams import counted, opened, records, through

EVERY_TYPE = [
    ("id", "bigint"),
    ("a", "tinyint"),
    ("b", "int"),
    ("c", "double"),
    ("d", "decimal(6,2)"),
    ("e", "string"),
    ("f", "boolean"),
    ("g", "timestamp"),
    ("h", "date"),
    ("i", "timestamp_ntz"),
    ("j", "float"),
    ("we`ird. name", "string"),
]


def test_the_same_records_come_however_the_barriers_cut_them(spark):
    chance = random.Random(3)
    source = opened("datagen", EVERY_TYPE, rows_per_barrier=1, seed=7)
    whole = {"n": 200, "at": 1767225600.0, "per_second": 1.0}
    expected = records(source, spark, None, whole)
    assert [row[0] for row in sorted(expected)] == list(range(200))
    found, at = [], None
    while at is None or at["n"] < 200:
        n = min(200, (at["n"] if at else 0) + chance.randrange(1, 60))
        upto = {**whole, "n": n}
        found += records(source, spark, at, upto)
        at = upto
    assert counted(found) == counted(expected)
    other = opened("datagen", EVERY_TYPE, rows_per_barrier=1, seed=8)
    assert not counted(records(other, spark, None, whole)) & counted(expected)


def test_each_generator_makes_what_it_says(spark):
    generate = {
        "n": {"sequence": {"start": 100, "step": 5}},
        "dice": {"uniform": {"min": 1, "max": 6}},
        "price": {"uniform": {"min": -1.5, "max": 1.5}, "null_share": 0.5},
        "city": {"choice": ["Oslo", "it's \\ Rome", None]},
        "word": {"text": {"length": 100}},
        "at": {"timestamp": {"start": "2026-02-03T04:05:06Z", "step": "1 minute", "jitter": 30}},
        "never": {"null_share": 1.0},
    }
    columns = [
        ("n", "int"),
        ("dice", "int"),
        ("price", "double"),
        ("city", "string"),
        ("word", "string"),
        ("at", "timestamp"),
        ("never", "bigint"),
    ]
    source = opened("datagen", columns, rows_per_barrier=1000, limit=2500, generate=generate)
    rows, _ = through(source, spark, *(name for name, _ in columns))
    n, dice, price, city, word, at, never = zip(*rows, strict=True)
    assert sorted(n) == list(range(100, 12600, 5))
    assert {die: 350 < dice.count(die) < 490 for die in dice} == dict.fromkeys(range(1, 7), True)
    assert 1100 < price.count(None) < 1400
    assert all(-1.5 <= value < 1.5 for value in price if value is not None)
    assert set(city) == {"Oslo", "it's \\ Rome", None}
    assert {len(text) for text in word} == {100}
    assert len(set(word)) == 2500
    assert set(never) == {None}
    seconds = sorted(value.timestamp() for value in at)
    assert len({second % 60 for second in seconds}) > 100
    assert seconds[-1] - seconds[0] == pytest.approx(2499 * 60, abs=60)


def test_records_are_due_by_the_clock_and_none_before(spark):
    source = opened("datagen", [("id", "bigint")], rows_per_second=3)
    end = source.due(None, 1000.0)
    assert (end.position["n"], end.records, end.oldest) == (3, 3, 999.0)
    assert source.due(end.position, 1000.3) is None
    later = source.due(end.position, 1011.0)
    assert (later.position["n"], later.records, later.oldest) == (36, 33, 1000.0)
    assert source.due(later.position, 900.0) is None  # the clock was set back
    quicker = opened("datagen", [("id", "bigint")], rows_per_second=300)
    assert source.due(later.position, 1012.0).records == 3
    assert quicker.due(later.position, 1012.0).records == 300
    bounded = opened(
        "datagen", [("id", "bigint")], rows_per_second=300, limit=50, max_records_per_barrier=8
    )
    assert bounded.due(later.position, 1e9).records == 8
    assert bounded.due({**later.position, "n": 50}, 1e9) is None


def test_since_says_when_the_first_record_was_due(spark):
    source = opened("rate", since="2026-01-01", rows_per_second=1, limit=10)
    end = source.end(spark, None)
    rows = sorted(records(source, spark, None, end.position, "value", "timestamp"))
    assert [row[0] for row in rows] == list(range(10))
    assert rows[9][1].timestamp() - rows[0][1].timestamp() == 9
    assert end.oldest == 1767225600


def test_a_rate_goes_on(spark):
    source = opened("rate", rows_per_second=1000)
    first = source.end(spark, None)
    assert first.records == 1000
    time.sleep(0.2)
    second = source.end(spark, first.position)
    assert 150 < second.records < 5000
    assert len(records(source, spark, first.position, second.position)) == second.records


def test_all_mistakes_of_a_declaration_are_told_at_once():
    with pytest.raises(StreamSqlError) as caught:
        opened(
            "datagen",
            [
                ("a", "tinyint"),
                ("b", "array<int>"),
                ("c", "string"),
                ("d", "int"),
                ("e", "int"),
                ("f", "int"),
            ],
            rows_per_second=0,
            sed=1,
            limit="many",
            generate={
                "a": {"uniform": {"min": 0, "max": 300}},
                "c": {"uniform": {}},
                "d": {"uniform": {"low": 1}},
                "e": {"unifrom": {}},
                "f": {"generator": "choice", "values": [1, 2]},
                "z": {"sequence": {}},
            },
        )
    told = str(caught.value)
    assert caught.value.code == "CONFIG_INVALID"
    for part in (
        "`rows_per_second` is 0",
        "do you mean `seed`?",
        "`limit` is 'many'",
        "`a`: 300 is not of type tinyint",
        "`b`: type array<int>",
        "`c`: uniform of type string",
        "`d`: low: known are min, max",
        "`e`: unifrom: one of",
        "for example `e: {uniform: {min: 1, max: 6}}`",
        "for example `f: {choice: [red, green, blue]}`",
        "`generate: z` is not a declared column",
        "a_stream",
    ):
        assert part in told, part
