"""dbt's cross-database macros, each in a view of its own that is kept from changes."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.spark

ROWS = """
    (1, date'2024-01-31', timestamp'2024-01-31 22:59:59.5', timestamp'2024-02-01 00:00:00',
     'a|b|c', 'it''s', true, '12'),
    (2, date'2024-12-31', timestamp'2024-12-31 23:59:59', timestamp'2025-01-05 00:30:00',
     '|x', 'B', false, 'x')
"""
NEWS = """
    (3, date'2024-02-29', timestamp'2024-02-29 12:00:00.123456',
     timestamp'2024-02-28 11:59:59.999999', 'no', 'no', true, '1e3'),
    (4, null, null, null, null, null, null, null)
"""
COLUMNS = "id, d, ts, te, parts, word, flag, code"


def adds(*rows):
    return [*rows, None]


ONE = {
    "dateadd_year": (
        "dbt.dateadd('year', 1, 'ts')",
        adds("2025-01-31 22:59:59.5", "2025-12-31 23:59:59", "2025-02-28 12:00:00.123456"),
    ),
    "dateadd_quarter": (
        "dbt.dateadd('quarter', 1, 'ts')",
        adds("2024-04-30 22:59:59.5", "2025-03-31 23:59:59", "2024-05-29 12:00:00.123456"),
    ),
    "dateadd_month": (
        "dbt.dateadd('month', 'id', 'ts')",
        adds("2024-02-29 22:59:59.5", "2025-02-28 23:59:59", "2024-05-29 12:00:00.123456"),
    ),
    "dateadd_week": (
        "dbt.dateadd('week', '-1', 'd')",
        adds("2024-01-24 00:00:00", "2024-12-24 00:00:00", "2024-02-22 00:00:00"),
    ),
    "dateadd_day": (
        "dbt.dateadd(datepart='day', interval=1, from_date_or_timestamp='ts')",
        adds("2024-02-01 22:59:59.5", "2025-01-01 23:59:59", "2024-03-01 12:00:00.123456"),
    ),
    "dateadd_hour": (
        "dbt.dateadd('HOUR', 2, 'ts')",
        adds("2024-02-01 00:59:59.5", "2025-01-01 01:59:59", "2024-02-29 14:00:00.123456"),
    ),
    "dateadd_minute": (
        "dbt.dateadd('minute', 1, 'ts')",
        adds("2024-01-31 23:00:59.5", "2025-01-01 00:00:59", "2024-02-29 12:01:00.123456"),
    ),
    "dateadd_second": (
        "dbt.dateadd('second', 1, 'ts')",
        adds("2024-01-31 23:00:00.5", "2025-01-01 00:00:00", "2024-02-29 12:00:01.123456"),
    ),
    "dateadd_millisecond": (
        "dbt.dateadd('millisecond', 500, 'ts')",
        adds("2024-01-31 23:00:00", "2024-12-31 23:59:59.5", "2024-02-29 12:00:00.623456"),
    ),
    "dateadd_microsecond": (
        "dbt.dateadd('microsecond', 5000000000, 'ts')",
        adds("2024-02-01 00:23:19.5", "2025-01-01 01:23:19", "2024-02-29 13:23:20.123456"),
    ),
    "datediff_year": ("dbt.datediff('ts', 'te', 'year')", [0, 1, 0, None]),
    "datediff_quarter": ("dbt.datediff('ts', 'te', 'quarter')", [0, 1, 0, None]),
    "datediff_month": ("dbt.datediff('ts', 'te', 'month')", [1, 1, 0, None]),
    "datediff_week": ("dbt.datediff('ts', 'te', 'week')", [0, 1, 0, None]),
    "datediff_day": ("dbt.datediff('ts', 'te', 'day')", [1, 5, -1, None]),
    "datediff_hour": ("dbt.datediff('ts', 'te', 'hour')", [2, 97, -25, None]),
    "datediff_minute": ("dbt.datediff('ts', 'te', 'minute')", [61, 5791, -1441, None]),
    "datediff_second": ("dbt.datediff('ts', 'te', 'second')", [3601, 347401, -86401, None]),
    "datediff_millisecond": (
        "dbt.datediff('ts', 'te', 'millisecond')",
        [3600500, 347401000, -86400124, None],
    ),
    "datediff_microsecond": (
        "dbt.datediff('ts', 'te', 'microsecond')",
        [3600500000, 347401000000, -86400123457, None],
    ),
    "last_day_month": (
        "dbt.last_day('ts', 'month')",
        adds("2024-01-31", "2024-12-31", "2024-02-29"),
    ),
    "last_day_quarter": (
        "dbt.last_day('d', 'quarter')",
        adds("2024-03-31", "2024-12-31", "2024-03-31"),
    ),
    "last_day_year": (
        "dbt.last_day('d', 'year')",
        adds("2024-12-31", "2024-12-31", "2024-12-31"),
    ),
    "date_trunc": (
        "dbt.date_trunc('month', 'ts')",
        adds("2024-01-01 00:00:00", "2024-12-01 00:00:00", "2024-02-01 00:00:00"),
    ),
    "date": ("dbt.date(2024, 2, 29)", ["2024-02-29"] * 4),
    "position": ("dbt.position(\"'|'\", 'parts')", [2, 1, 0, None]),
    "safe_cast": (
        "dbt.safe_cast('code', api.Column.translate_type('integer'))",
        [12] + [None] * 3,
    ),
    "safe_cast_decimal": ("dbt.safe_cast('code', 'decimal(6,1)')", ["12.0", None, "1000.0", None]),
    "cast": ("dbt.cast('id', dbt.type_string())", ["1", "2", "3", "4"]),
    "cast_bool_to_text": ("dbt.cast_bool_to_text('flag')", ["true", "false", "true", None]),
    "split_part": ("dbt.split_part('parts', \"'|'\", 2)", ["b", "x", "", None]),
    "split_part_last": ("dbt.split_part('parts', \"'|'\", -1)", ["c", "x", "no", None]),
    "concat": ("dbt.concat(['word', \"'-'\", 'code'])", ["it's-12", "B-x", "no-1e3", None]),
    "length": ("dbt.length('word')", [4, 1, 2, None]),
    "replace": ("dbt.replace('parts', \"'|'\", \"'/'\")", ["a/b/c", "/x", "no", None]),
    "right": ("dbt.right('word', 2)", ["'s", "B", "no", None]),
    "hash": (
        "dbt.hash('code')",
        [
            "c20ad4d76fe97759aa27a0c99bff6710",
            "9dd4e461268c8034f5c8564e155c67a6",
            "8d9e78ee05f0247b1e9399c06976bda7",
            None,
        ],
    ),
    "literal": ("dbt.string_literal('a b')", ["a b"] * 4),
    "escaped": ('"\'" ~ dbt.escape_single_quotes("it\'s") ~ "\'"', ["it's"] * 4),
    "equals": ("dbt.equals('parts', 'word')", [False, False, True, None]),
    "array_construct": (
        "'array_join(' ~ dbt.array_construct(['word', 'code']) ~ \", ',', '?')\"",
        ["it's,12", "B,x", "no,1e3", "?,?"],
    ),
    "array_append": (
        "'array_join(' ~ dbt.array_append(\"split(parts, '[|]')\", 'code') ~ \", ',')\"",
        ["a,b,c,12", ",x,x", "no,1e3", None],
    ),
    "array_concat": (
        "'size(' ~ dbt.array_concat(\"split(parts, '[|]')\", 'array(word)') ~ ')'",
        [4, 3, 2, None],
    ),
    "types": (
        (
            "'concat_ws(\"/\", ' ~ ['cast(id as ' ~ dbt.type_int() ~ ')', "
            "'cast(id as ' ~ dbt.type_bigint() ~ ')', 'cast(id as ' ~ dbt.type_numeric() ~ ')', "
            "'cast(id as ' ~ dbt.type_boolean() ~ ')', 'cast(d as ' ~ dbt.type_timestamp() ~ ')'] "
            "| join(', ') ~ ')'"
        ),
        [
            "1/1/1.000000/true/2024-01-31 00:00:00",
            "2/2/2.000000/true/2024-12-31 00:00:00",
            "3/3/3.000000/true/2024-02-29 00:00:00",
            "4/4/4.000000/true",
        ],
    ),
}
"""Of every row: an expression in Jinja, and its values in the rows 1 to 4."""

WHOLE = {
    "any_value": "select id % 2 as k, {{ dbt.any_value('id % 2') }} as v from T group by id % 2",
    "bool_or": "select id % 2 as k, {{ dbt.bool_or('flag') }} as v from T group by id % 2",
    "listagg": "select id % 2 as k, {{ dbt.listagg('word', \"','\", 'order by id') }} as v from T "
    "group by id % 2",
    "except_": "select id from T {{ dbt.except() }} select id from T where flag",
    "intersect_": "select id from T {{ dbt.intersect() }} select id from T where flag",
    "joined_to_days": "with days as (select explode(sequence(date'2024-01-01', date'2025-12-31')) "
    "as day) select days.day, T.id from T join days on days.day = "
    "cast({{ dbt.dateadd('day', 1, 'd') }} as date)",
    "series": "with n as ({{ dbt.generate_series(5) }}) select n.generated_number, T.id from T "
    "join n on n.generated_number = T.id",
    "spine": "with days as ({{ dbt.date_spine('day', \"cast('2024-01-30' as date)\", "
    "\"cast('2024-03-02' as date)\") }}) select cast(days.date_day as date) as day, T.id from T "
    "join days on cast(days.date_day as date) = T.d",
}
"""Of all rows: queries."""


@pytest.fixture
def shop(project):
    project.write(
        "models/t.sql",
        "{{ config(materialized='incremental') }} select * from values"
        f"{ROWS} as v({COLUMNS}) {{% if is_incremental() %}} where false {{% endif %}}",
    )
    return project


def test_every_macro_is_kept_from_changes_and_right(shop):
    queries = {
        name: f"select id, {{{{ {expression} }}}} as v from T"
        for name, (expression, _) in ONE.items()
    }
    queries |= WHOLE
    for name, query in queries.items():
        kept = "materialized='materialized_view', refresh_mode='incremental_strict'"
        text = query.replace("T.", "t.").replace("from T", "from {{ ref('t') }} as t")
        shop.write(f"models/{name}.sql", f"{{{{ config({kept}) }}}}\n{text}")
    done = shop.dbt("run")
    built = done.statuses
    assert {name: done.messages[name] for name in built if built[name] != "success"} == {}
    shop.sql(f"insert into lake.shop.t select * from values {NEWS} as v({COLUMNS})")
    done = shop.dbt("run", "--exclude", "t")
    assert done.ok, done.messages
    modes = {name: done.messages[name].split()[0] for name in queries}
    assert {name for name, mode in modes.items() if mode not in ("INCREMENTAL", "APPEND")} == set()
    for name in WHOLE:
        assert shop.host.engine.verify(f"lake.shop.{name}") == [], name
    found = {}
    for name in ONE:
        rows = shop.sql(f"select cast(v as string) from lake.shop.{name} order by id")
        found[name] = [value for (value,) in rows]
    assert found == {name: list(map(as_text, values)) for name, (_, values) in ONE.items()}


def as_text(value):
    if isinstance(value, bool):
        return str(value).lower()
    return None if value is None else str(value)
