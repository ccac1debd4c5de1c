"""Times of records, as numbers and by patterns; and nothing that a record holds stops a run."""

from __future__ import annotations

import datetime as dt
import json

import pytest

from dbt_streamsql.connectors.options import Options
from dbt_streamsql.connectors.sources.formats.decoding import VALUE
from dbt_streamsql.connectors.sources.formats.registry import format_of
from dbt_streamsql.connectors.sources.source import AT, PROBLEM
from dbt_streamsql.errors import Place, StreamSqlError

pytestmark = pytest.mark.spark

TYPES = (
    *("tinyint", "int", "bigint", "float", "double", "decimal(38,0)", "decimal(10,2)"),
    *("boolean", "string", "binary", "date", "timestamp", "timestamp_ntz"),
    *("array<timestamp>", "map<int,date>", "map<timestamp_ntz,int>", "struct<a:decimal(38,38)>"),
)
EXTREMES = [
    *("9223372036854775807", "-9223372036854775808", "9223372036854775808", "9" * 400),
    *("1e400", "-1e400", "1e2147483648", "1e-2147483648", "1e99999999999999999999", "-0", "0.1"),
    *("2147483647", "-2147483648", "true", "null", "[]", "{}", "[[]]", '""', '" "', '"NaN"'),
    *('"\\u0000"', '"\\ud800"', '"31/12/999999999"', '"31/12/+999999999"', '"-999999999-01-01"'),
    *('"+999999999-12-31T23:59:59Z"', '"0000-00-00"', '"2024-02-30"', '"24:00:00"', '"."', '"-"'),
    *('"9999-12-31T23:59:59.999999999+18:00"', '"-9999-01-01T00:00:00-18:00"', '"1e"', '"e1"'),
    *('[9223372036854775807,"x",null]', '{"a":1e400}', '{"9223372036854775807":1}', '{"":{}}'),
]
PATTERNS = [
    {},
    {"timestamp_format": "epoch_s", "date_format": "epoch_days"},
    {"timestamp_format": "epoch_ms", "date_format": "dd/MM/y"},
    {"timestamp_format": "dd/MM/y", "date_format": "yyyy-MM-dd"},
    {"timestamp_format": "yyyy-MM-dd'T'HH:mm:ssXXX"},
]


def form(kind, columns, **options):
    spec = {"connector": "kafka", "format": kind, "columns": columns, "options": options}
    given = Options(spec, Place("a_stream"))
    found = format_of(given, ("json", "csv", "debezium"))
    given.check()
    return found


def decoded(spark, found, records):
    rows = [(at, bytearray(each.encode())) for at, each in enumerate(records)]
    frame = spark.createDataFrame(rows, f"`{AT}` BIGINT, `{VALUE}` BINARY")
    return found.decode(spark, frame, ())


def one(spark, kind, value, fmt="json", **options):
    """(value as text, problem) of a record with one column."""
    record = value if fmt == "csv" else f'{{"v":{value}}}'
    found = decoded(spark, form(fmt, [("v", kind)], **options), [record])
    (row,) = found.selectExpr("CAST(v AS STRING)", f"`{PROBLEM}`").collect()
    return tuple(row)


@pytest.fixture(params=["UTC", "Europe/Berlin"])
def zone(spark, request):
    """The zone of the session; Berlin's clocks leave an hour out, and have one twice."""
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", request.param)
    yield request.param
    spark.conf.set("spark.sql.session.timeZone", before)


@pytest.mark.parametrize("fmt", ["json", "csv"])
def test_numbers_since_1970_are_times_of_utc_without_a_zone(spark, zone, fmt):
    for unit, value in (
        ("epoch_s", "1711852200"),
        ("epoch_ms", "1711852200000"),
        ("epoch_us", "1711852200000000"),
    ):
        got = one(spark, "timestamp_ntz", value, fmt, timestamp_format=unit)
        assert got == ("2024-03-31 02:30:00", None), zone
        nested = one(spark, "array<timestamp_ntz>", f"[{value}]", timestamp_format=unit)
        assert nested == ("[2024-03-31 02:30:00]", None)


def test_numbers_of_days_since_1970_are_dates(spark, zone):
    del zone
    days = (dt.date(2024, 2, 29) - dt.date(1970, 1, 1)).days
    for fmt in ("json", "csv"):
        assert one(spark, "date", str(days), fmt, date_format="epoch_days") == ("2024-02-29", None)
    value, problem = one(spark, "date", "2147483648", date_format="epoch_days")
    assert (value, problem) == (None, "column v: 2147483648 is not of type date")


def test_a_record_may_have_counts_and_written_times(spark, zone):
    del zone
    columns = [("a", "timestamp"), ("b", "timestamp"), ("c", "date"), ("d", "date")]
    columns += [("e", "timestamp_ntz"), ("f", "timestamp_ntz")]
    record = (
        '{"a":1706688001000000,"b":"2024-01-31T08:00:01Z","c":19753,"d":"2024-01-31",'
        '"e":1706688001000000,"f":"2024-01-31T08:00:01"}'
    )
    options = {"timestamp_format": "epoch_us", "date_format": "epoch_days"}
    found = decoded(spark, form("json", columns, **options), [record])
    shown = "unix_micros(a), unix_micros(b), string(c), string(d), string(e), string(f)"
    (row,) = found.selectExpr(*shown.split(", "), f"`{PROBLEM}`").collect()
    micros, day, wall = 1706688001000000, "2024-01-31", "2024-01-31 08:00:01"
    assert tuple(row) == (micros, micros, day, day, wall, wall, None)


def test_a_pattern_gives_the_time_that_is_written_in_every_zone(spark, zone):
    options = {"timestamp_format": "dd.MM.yyyy HH:mm", "date_format": "dd.MM.yyyy"}
    for text, wall in (
        ("31.03.2024 02:30", "2024-03-31 02:30:00"),
        ("27.10.2024 02:30", "2024-10-27 02:30:00"),
    ):
        got = one(spark, "timestamp_ntz", f'"{text}"', **options)
        assert got == (wall, None), zone
    assert one(spark, "date", '"31.03.2024"', **options) == ("2024-03-31", None)


def test_counts_that_no_time_has_make_a_bad_record(spark):
    most = "9223372036854775807"
    for kind in ("timestamp", "timestamp_ntz"):
        for unit in ("epoch_s", "epoch_ms"):
            value, problem = one(spark, kind, most, timestamp_format=unit)
            assert (value, problem) == (None, f"column v: {most} is not of type {kind}")


@pytest.mark.parametrize("options", PATTERNS, ids=str)
@pytest.mark.parametrize("fmt", ["json", "csv", "debezium"])
def test_no_value_stops_the_reading_of_others(spark, fmt, options):
    columns = [(f"c{at}", kind) for at, kind in enumerate(TYPES)]
    if fmt == "csv":
        columns = [each for each in columns if "<" not in each[1]]
    records = []
    for value in EXTREMES:
        record = "{" + ",".join(f'"{name}":{value}' for name, _ in columns) + "}"
        alone = [f'{{"{name}":{value}}}' for name, _ in columns]
        if fmt == "json":
            records += [record, *alone]
        elif fmt == "csv":
            records.append(",".join([value.strip('"')] * len(columns)))
        else:
            around = '{"op":"u","ts_ms":%s,"source":{"ts_ms":%s,"lsn":%s},"after":%s}'
            records += [around % (value, value, value, each) for each in alone]
    got = decoded(spark, form(fmt, columns, **options), records)
    # Written, as an epoch does it: what is only counted need not be computed.
    got.write.format("noop").mode("overwrite").save()
    assert got.count() == len(records)


@pytest.mark.parametrize("key", ["timestamp_format", "date_format"])
@pytest.mark.parametrize("pattern", ["dd/MM/YYYY", "nonsense", "epoch", "yyyy-MM-dd'"])
def test_a_pattern_that_spark_does_not_take_is_told_as_such(spark, key, pattern):
    with pytest.raises(StreamSqlError) as caught:
        form("json", [("v", "date")], **{key: pattern}).columns(spark)
    assert (caught.value.code, caught.value.given) == ("CONFIG_INVALID", pattern)
    assert key in str(caught.value)
    assert "epoch_" in caught.value.allowed


def test_a_run_puts_aside_what_it_cannot_read_and_goes_on(engine, schema, tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    columns = [["id", "int"], ["t", "timestamp"], ["n", "timestamp_ntz"], ["d", "date"]]
    columns += [["a", "decimal(10,2)"], ["l", "array<double>"]]
    records = [{"id": 0, "t": 1706688001, "n": 1706688001, "d": 19782, "a": 1.5, "l": [2.5]}]
    texts = [json.dumps(records[0])]
    for name, _ in columns[1:]:
        texts += [
            f'{{"id":{len(texts) + at},"{name}":{each}}}' for at, each in enumerate(EXTREMES)
        ]
    (folder / "a.json").write_text("".join(f"{text}\n" for text in texts))
    table, view = f"lake.{schema}.events", f"lake.{schema}.per_day"
    engine.create_streaming_table(
        table,
        "SELECT * FROM lake.raw.events",
        stream="lake.raw.events",
        source={
            "connector": "files",
            "format": "json",
            "columns": columns,
            "options": {
                "path": str(folder),
                "timestamp_format": "epoch_s",
                "date_format": "epoch_days",
            },
        },
        on_error="quarantine",
    )
    engine.create_materialized_view(view, f"SELECT d, count(*) AS n FROM {table} GROUP BY d")
    (folder / "b.json").write_text('{"id":-1,"t":1706688001,"d":19782}\n')
    engine.advance()
    good, bad = (
        engine.sql(f"SELECT count(*) FROM {name}").collect()[0][0]
        for name in (table, f"{table}__quarantine")
    )
    assert good + bad == len(texts) + 1
    shown = f"SELECT CAST(n AS STRING), CAST(unix_seconds(t) AS STRING) FROM {table} WHERE id <= 0"
    rows = sorted(tuple(row) for row in engine.sql(shown).collect() if row[0] is not None)
    assert rows == [("2024-01-31 08:00:01", "1706688001")]
    (row,) = engine.sql(f"SELECT n FROM {view} WHERE d = DATE'2024-02-29'").collect()
    assert row.n >= 2
