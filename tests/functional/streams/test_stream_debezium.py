"""What Debezium's envelopes stand for: by their own schema, by options, or as a bad record."""

from __future__ import annotations

import base64
import datetime as dt
import decimal
import hashlib
import json
import random
import uuid

import pytest

from dbt_streamsql.connectors.options import Options
from dbt_streamsql.connectors.sources.formats.decoding import VALUE
from dbt_streamsql.connectors.sources.formats.registry import format_of
from dbt_streamsql.connectors.sources.source import AT, PROBLEM
from dbt_streamsql.errors import Place, StreamSqlError
from dbt_streamsql.storage.java import is_connect

pytestmark = pytest.mark.spark

Decimal = decimal.Decimal
WORD = "__debezium_unavailable_value"
DECIMAL = "org.apache.kafka.connect.data.Decimal"


def records(spark, columns, changes, **options):
    spec = {"connector": "kafka", "format": "debezium", "columns": columns, "options": options}
    given = Options(spec, Place("a_stream"))
    found = format_of(given, ("debezium",))
    given.check()
    texts = [each if isinstance(each, str) else json.dumps(each) for each in changes]
    rows = [(at, bytearray(each.encode())) for at, each in enumerate(texts)]
    frame = spark.createDataFrame(rows, f"`{AT}` BIGINT, `{VALUE}` BINARY")
    return found.decode(spark, frame, ())


def decoded(spark, columns, changes, **options):
    found = records(spark, columns, changes, **options)
    return sorted(found.collect(), key=lambda row: int(row[AT]))


def change(after=None, before=None, op="u"):
    return {"op": op, "before": before, "after": after, "ts_ms": 1, "source": {}}


def described(fields, after, op="c"):
    """An envelope with its schema: of each field its name, and what its schema says."""
    row = [{"field": name, "optional": True, **said} for name, said in fields.items()]
    around = [{"field": name, "type": "struct", "fields": row} for name in ("before", "after")]
    return {"schema": {"type": "struct", "fields": around}, "payload": change(after, op=op)}


def exact(scale):
    return {"type": "bytes", "name": DECIMAL, "version": 1, "parameters": {"scale": str(scale)}}


def bytes_of(number, scale):
    """A decimal as Kafka Connect writes it."""
    whole = int(Decimal(number).scaleb(scale, decimal.Context(prec=60)))
    size = (whole if whole >= 0 else ~whole).bit_length() // 8 + 1
    return base64.b64encode(whole.to_bytes(size, "big", signed=True)).decode()


def numbers(seed, scale):
    chance = random.Random(seed)
    least = Decimal(1).scaleb(-scale)
    top = Decimal(10**38 - 1).scaleb(-scale, decimal.Context(prec=60))
    found = [least * 0, least, least.copy_negate(), top, top.copy_negate()]
    for size in range(1, 39):
        whole = chance.randrange(10**size) * chance.choice((1, -1))
        found.append(Decimal(whole).scaleb(-scale, decimal.Context(prec=60)))
    return found


@pytest.mark.parametrize("scale", [0, 2, 38])
def test_decimals_in_bytes_are_read_by_the_schema_or_by_the_option(spark, scale):
    seed = random.randrange(1 << 30)
    print("seed", seed)
    values = numbers(seed, scale)
    texts = [bytes_of(value, scale) for value in values]
    columns = [("v", f"decimal(38,{scale})"), ("t", "string")]
    fields = {"v": exact(scale), "t": exact(scale)}
    rows = decoded(spark, columns, [described(fields, {"v": t, "t": t}) for t in texts])
    for row, value in zip(rows, values, strict=True):
        assert (row[PROBLEM], row.v, row.t) == (None, value, f"{value:f}")
    bare = [change({"v": text}) for text in texts]
    rows = decoded(spark, columns[:1], bare, decimal_handling="precise")
    assert [(row[PROBLEM], row.v) for row in rows] == [(None, value) for value in values]


def test_bytes_that_look_like_a_number_are_never_taken_for_one(spark):
    column = [("v", "decimal(20,2)")]
    (row,) = decoded(spark, column, [described({"v": exact(2)}, {"v": "1000"})])
    assert row.v == Decimal("-26672.12")
    (row,) = decoded(spark, column, [change({"v": "1000"})], decimal_handling="precise")
    assert row.v == Decimal("-26672.12")
    (row,) = decoded(spark, column, [change({"v": "1000"})], decimal_handling="string")
    assert row.v == Decimal(1000)
    rows = decoded(
        spark, column, [change({"v": each}) for each in ("1000", 1000, "10.00", "1E+4")]
    )
    assert [row.v for row in rows] == [None, Decimal(1000), Decimal(10), None]
    for row in (rows[0], rows[3]):
        assert "`decimal_handling`" in row[PROBLEM]


def test_numbers_are_numbers_whatever_the_schema_says(spark):
    fields = {"v": exact(2)}
    changes = [described(fields, {"v": 12.34}), described(fields, {"v": "?"})]
    good, bad = decoded(spark, [("v", "decimal(20,2)")], changes)
    assert (good.v, good[PROBLEM]) == (Decimal("12.34"), None)
    assert bad[PROBLEM] == f"column v: ? is not {DECIMAL}"


def test_times_and_bits_are_what_the_schema_says(spark):
    def named(name, **parameters):
        return {"type": "int64", "name": name, "parameters": parameters}

    debezium, connect = "io.debezium.time", "org.apache.kafka.connect.data"
    at = dt.datetime(2024, 1, 31, 8, 0, 1, 123456)  # noqa: DTZ001 - a time of no zone
    millis, micros = 1706688001123, 1706688001123456
    cases = [
        ("date", named(f"{debezium}.Date"), 19753, at.date()),
        ("date", named(f"{connect}.Date"), -1, dt.date(1969, 12, 31)),
        ("string", named(f"{debezium}.Date"), 19753, "2024-01-31"),
        ("int", named(f"{debezium}.Date"), 19753, 19753),
        ("timestamp_ntz", named(f"{debezium}.Timestamp"), millis, at.replace(microsecond=123000)),
        ("timestamp_ntz", named(f"{connect}.Timestamp"), millis, at.replace(microsecond=123000)),
        ("timestamp_ntz", named(f"{debezium}.MicroTimestamp"), micros, at),
        ("timestamp_ntz", named(f"{debezium}.NanoTimestamp"), micros * 1000 + 999, at),
        ("timestamp", named(f"{debezium}.MicroTimestamp"), micros, at),
        ("timestamp", named(f"{debezium}.ZonedTimestamp"), "2024-01-31T08:00:01.123456Z", at),
        ("bigint", named(f"{debezium}.MicroTimestamp"), micros, micros),
        ("string", named(f"{debezium}.MicroTimestamp"), micros, "2024-01-31 08:00:01.123456"),
        ("string", named(f"{debezium}.MicroTime"), 28801500000, "08:00:01.5"),
        ("string", named(f"{connect}.Time"), 28801000, "08:00:01"),
        ("string", named(f"{debezium}.NanoTime"), 86400000000000, "24:00:00"),
        ("string", named("io.debezium.data.Enum", allowed="a,b"), "a", "a"),
        ("string", named("io.debezium.data.Bits", length="12"), "BQE=", "000100000101"),
        ("decimal(9,2)", named("io.debezium.data.VariableScaleDecimal"), {"scale": 1, "value": "fQ=="}, Decimal("12.5")),
        ("string", named("io.debezium.data.geometry.Point"), {"x": 1.50, "wkb": "AQ=="}, '{"x":1.5,"wkb":"AQ=="}'),
    ]  # fmt: skip
    columns = [(f"c{number}", case[0]) for number, case in enumerate(cases)]
    fields = {f"c{number}": case[1] for number, case in enumerate(cases)}
    after = {f"c{number}": case[2] for number, case in enumerate(cases)}
    (row,) = decoded(spark, columns, [described(fields, after)])
    assert row[PROBLEM] is None
    for number, (kind, said, _, value) in enumerate(cases):
        got = row[f"c{number}"]
        if kind == "timestamp":
            got = got.astimezone(dt.timezone.utc).replace(tzinfo=None)
        assert got == value, (kind, said)


def test_a_value_that_was_not_sent_is_the_one_before_or_a_bad_record(spark):
    raw = WORD.encode()
    hashed = uuid.UUID(bytes=hashlib.md5(raw, usedforsecurity=False).digest(), version=3)
    cases = [
        ("string", WORD, "old"),
        ("binary", base64.b64encode(raw).decode(), "AAEC"),
        ("string", base64.b64encode(raw).decode(), "old"),
        ("string", raw.hex(), "old"),
        ("array<string>", [WORD], ["old"]),
        ("array<int>", list(raw), [1, 2]),
        ("array<string>", [str(hashed)], ["old"]),
        ("map<string,string>", {WORD: WORD}, {"a": "old"}),
        ("decimal(9,2)", WORD, "12.34"),
    ]  # fmt: skip
    for kind, word, old in cases:
        columns = [("id", "int"), ("v", kind)]
        changes = [
            change({"id": 1, "v": old}),
            change({"id": 1, "v": word}, {"id": 1, "v": old}),
            change({"id": 1, "v": word}, {"id": 1}),
            change({"id": 1, "v": word}),
            change({"id": 1, "v": word}, {"id": 1, "v": word}),
            change(None, {"id": 1, "v": word}, op="d"),
        ]
        rows = decoded(spark, columns, changes)
        assert [row[PROBLEM] for row in rows[:2]] == [None, None], kind
        assert rows[0].v == rows[1].v, kind
        for row in rows[2:5]:
            assert row[PROBLEM].startswith("column v: the update did not change it"), kind
            assert row.v is None
        assert (rows[5][PROBLEM], rows[5].id, rows[5].v) == (None, 1, None)


def test_the_word_for_what_was_not_sent_may_be_another(spark):
    columns = [("v", "string")]
    changes = [change({"v": each}, {"v": "old"}) for each in ("-gone-", WORD)]
    rows = decoded(spark, columns, changes, unavailable_value="-gone-")
    assert [row.v for row in rows] == ["old", WORD]


def test_another_way_to_write_decimals_is_refused(spark):
    with pytest.raises(StreamSqlError) as caught:
        decoded(spark, [("v", "string")], [], decimal_handling="bytes")
    assert caught.value.code == "CONFIG_INVALID"
    assert "one of precise, string, double" in str(caught.value)


def test_a_table_by_key_never_holds_the_word(engine, schema, tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    table = f"lake.{schema}.docs"

    def put(name, *changes):
        (folder / name).write_text("".join(json.dumps(each) + "\n" for each in changes))

    put("a.json", change({"id": 1, "body": "long", "n": 1}, op="c"))
    engine.create_streaming_table(
        table,
        "SELECT id, body, n, _op FROM lake.raw.docs WHERE _op <> 't'",
        stream="lake.raw.docs",
        source={
            "connector": "files",
            "format": "debezium",
            "columns": [["id", "int"], ["body", "string"], ["n", "int"]],
            "options": {"path": str(folder)},
        },
        key=["id"],
        sequence_by="n",
        delete_when="_op = 'd'",
        leave_out=["_op"],
        on_error="quarantine",
    )
    full = {"id": 1, "body": "long", "n": 1}
    put("b.json", change({"id": 1, "body": WORD, "n": 2}, full))
    put("c.json", change({"id": 2, "body": WORD, "n": 3}))
    engine.advance()
    rows = engine.sql(f"SELECT id, body, n FROM {table}").collect()
    assert [tuple(row) for row in rows] == [(1, "long", 2)]
    (bad,) = engine.sql(f"SELECT reason FROM {table}__quarantine").collect()
    assert "REPLICA IDENTITY FULL" in bad.reason


def test_to_pass_over_bad_records_makes_their_plan_no_larger(spark):
    if is_connect(spark):
        pytest.skip("a plan is looked at by Java")
    kinds = ("bigint", "string", "timestamp", "decimal(12,2)", "date", "string")
    columns = [(f"c{at}", kind) for at, kind in enumerate(kinds)]
    found = records(spark, columns, [change({"c0": 1}), "{"], decimal_handling="string")
    found = found.where(f"{PROBLEM} IS NULL")
    assert [row.c0 for row in found.collect()] == [1]
    plan = found._jdf.queryExecution().optimizedPlan().toString()
    assert len(plan) < 100_000
