"""Every type goes in and comes out the same, by every way to Spark."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal

import pytest

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
        'a''b\\\\c — é' as text,
        named_struct('a', 1, 'b', array(named_struct('c', cast(1.5 as decimal(5, 2)), 'd', null))) as nested,
        map('k', array(1, null), 'l', null) as keyed
"""
EXPECTED = {
    "id": 1,
    "tenth": Decimal("0.100000000000000000"),
    "exact": Decimal("-12345678901234567890.123456789012345678"),
    "early": dt.date(1, 2, 3),
    "wall_clock": dt.datetime(2026, 3, 29, 2, 30, 0, 654321),  # noqa: DTZ001 - it has no zone
    "bytes": b"\x00\xff\x10",
    "text": "a'b\\c — é",
    "keyed": {"k": [1, None], "l": None},
}


@pytest.mark.parametrize("kind", ["table", "incremental", "materialized_view"])
def test_what_a_model_selects_is_what_it_holds(project, kind):
    base = "{{ config(materialized='table') }}" + QUERY.replace("'d', null", "'d', 'x'")
    project.write("models/base.sql", base)
    project.write(
        "models/kept.sql",
        f"{{{{ config(materialized='{kind}', unique_key='id') }}}} select * from {{{{ ref('base') }}}}"
        if kind == "incremental"
        else f"{{{{ config(materialized='{kind}') }}}} select * from {{{{ ref('base') }}}}",
    )
    for _ in range(2):
        done = project.dbt("run")
        assert done.ok, done.text
    session = project.host.acquire()
    row = session.sql("select * from lake.shop.kept").collect()[0]
    assert {name: _plain(row[name]) for name in EXPECTED} == EXPECTED
    assert str(row["no_number"]) == "nan"
    assert row["nested"].asDict(recursive=True) == {
        "a": 1,
        "b": [{"c": Decimal("1.50"), "d": "x"}],
    }
    micros = session.sql("select unix_micros(instant) from lake.shop.kept").collect()[0][0]
    assert micros == 1_774_747_800_123_456
    assert session.sql(
        "select * from lake.shop.kept except all select * from lake.shop.base"
    ).isEmpty()


def test_show_prints_decimals_times_and_nested_values(project):
    done = project.dbt(
        "show", "--inline", QUERY.replace("x'00ff10' as bytes,", ""), "--output", "json"
    )
    assert done.ok, done.text
    shown = json.loads(done.text[done.text.index("{") :])["show"][0]
    assert shown["keyed"] == {"k": [1, None], "l": None}
    assert shown["nested"] == {"a": 1, "b": [{"c": 1.5, "d": None}]}


def _plain(value):
    return bytes(value) if isinstance(value, bytearray) else value
