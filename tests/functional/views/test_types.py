"""Every type goes in and comes out the same, by every way to Spark."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal

QUERY = """
    select
        1 as id,
        cast(0.1 as decimal(38, 18)) as tenth,
        cast('-12345678901234567890.123456789012345678' as decimal(38, 18)) as exact,
        cast('0001-02-03' as date) as early,
        timestamp '2026-03-29 01:30:00.123456' as instant,
        timestamp_ntz '2026-03-29 02:30:00.654321' as wall_clock,
        cast('NaN' as double) as no_number,
        x'00ff10' as bytes,
        'a\\'b\\\\c — é' as text,
        named_struct('a', 1, 'b', array(named_struct('c', cast(1.5 as decimal(5, 2)), 'd', null))) as nested,
        map('k', array(1, null), 'l', null) as keyed
"""
KINDS = ("table", "incremental", "materialized_view")
EXPECTED = {
    "id": 1,
    "micros": 1_774_747_800_123_456,
    "tenth": Decimal("0.100000000000000000"),
    "exact": Decimal("-12345678901234567890.123456789012345678"),
    "early": dt.date(1, 2, 3),
    "wall_clock": dt.datetime(2026, 3, 29, 2, 30, 0, 654321),  # noqa: DTZ001 - it has no zone
    "bytes": b"\x00\xff\x10",
    "text": "a'b\\c — é",
    "keyed": {"k": [1, None], "l": None},
}


def test_what_a_model_selects_is_what_it_holds(project):
    base = "{{ config(materialized='table') }}" + QUERY.replace("'d', null", "'d', 'x'")
    project.write("models/base.sql", base)
    for kind in KINDS:
        key = ", unique_key='id'" if kind == "incremental" else ""
        config = f"{{{{ config(materialized='{kind}'{key}) }}}}"
        project.write(f"models/a_{kind}.sql", config + " select * from {{ ref('base') }}")
    for _ in range(2):
        done = project.dbt("run")
        assert done.ok, done.text
    session = project.host.acquire()
    for kind in KINDS:
        query = f"select *, unix_micros(instant) as micros from lake.shop.a_{kind}"
        (row,) = session.sql(query).collect()
        assert {name: _plain(row[name]) for name in EXPECTED} == EXPECTED, kind
        assert str(row["no_number"]) == "nan"
        nested = [{"c": Decimal("1.50"), "d": "x"}]
        assert row["nested"].asDict(recursive=True) == {"a": 1, "b": nested}, kind


def test_show_prints_decimals_times_and_nested_values(project):
    done = project.dbt(
        "show", "--inline", QUERY.replace("x'00ff10' as bytes,", ""), "--output", "json"
    )
    assert done.ok, done.text
    body, _ = json.JSONDecoder().raw_decode(done.text, done.text.index('{\n  "show"'))
    (shown,) = body["show"]
    assert json.loads(shown["keyed"]) == {"k": [1, None], "l": None}
    assert json.loads(shown["nested"]) == {"a": 1, "b": [{"c": 1.5, "d": None}]}
    assert shown["instant"] == "2026-03-29T01:30:00.123456"
    assert shown["wall_clock"] == "2026-03-29T02:30:00.654321"


def _plain(value):
    return bytes(value) if isinstance(value, bytearray) else value
