"""A text is the value that it says, in every format, type and place; or its record is a bad one."""

from __future__ import annotations

import datetime as dt
import decimal
import io
import json
import random
import struct

import fastavro
import pytest

from dbt_streamsql.connectors.options import Options
from dbt_streamsql.connectors.sources.formats.decoding import VALUE
from dbt_streamsql.connectors.sources.formats.registry import format_of
from dbt_streamsql.connectors.sources.source import AT, PROBLEM
from dbt_streamsql.errors import Place

pytestmark = pytest.mark.spark

KNOWN = ("json", "csv", "avro", "debezium")
Decimal = decimal.Decimal
decimal.getcontext().prec = 60


def decoded(spark, kind, columns, records, **options):
    """The rows of these records, in order."""
    spec = {"connector": "kafka", "format": kind, "columns": columns, "options": options}
    given = Options(spec, Place("a_stream"))
    found = format_of(given, KNOWN)
    given.check()
    rows = [
        (at, bytearray(each.encode() if isinstance(each, str) else each))
        for at, each in enumerate(records)
    ]
    frame = spark.createDataFrame(rows, f"`{AT}` BIGINT, `{VALUE}` BINARY")
    return sorted(found.decode(spark, frame, ()).collect(), key=lambda row: int(row[AT]))


def float32(value):
    return struct.unpack("f", struct.pack("f", value))[0]


def aware(value, kind):
    """A timestamp as Spark gives it, which is in the zone of this machine."""
    return value.astimezone(dt.timezone.utc) if kind == "timestamp" else value


def digits(chance, count):
    return "".join(chance.choice("0123456789") for _ in range(count))


def number(chance, whole, scale):
    """The text of a decimal with so many digits before and after its point."""
    before = (digits(chance, whole).lstrip("0") or "0") if whole else "0"
    sign = chance.choice(["", "-"])
    return f"{sign}{before}" + (f".{digits(chance, scale)}" if scale else "")


def moments(chance):
    for _ in range(20):
        at = dt.datetime(1900, 1, 1, tzinfo=dt.timezone.utc)
        yield at + dt.timedelta(microseconds=chance.randrange(200 * 365 * 86_400_000_000))


def numbers(seed):
    """Texts of numbers that JSON takes without quotes, by type: what each is."""
    chance = random.Random(seed)
    found = {}
    for kind, bits in (("tinyint", 8), ("smallint", 16), ("int", 32), ("bigint", 64)):
        low, high = -(1 << bits - 1), (1 << bits - 1) - 1
        texts = [low, high, 0, -1, *(chance.randint(low, high) for _ in range(20))]
        found[kind] = [(str(each), each) for each in texts]
    for whole, scale in ((16, 2), (3, 2), (0, 38), (38, 0), (19, 19), (1, 0)):
        texts = [number(chance, whole, scale) for _ in range(20)]
        texts += ["0", "-0", "0.0", "0e400", "9" * whole or "0", "0." + "9" * scale + "000"]
        texts += [
            text for text in ("1.10", "1E0", "12e-1", "120e-1", "1.5e0") if whole + scale > 3
        ]
        fits = [text for text in texts if -Decimal(text).normalize().as_tuple().exponent <= scale]
        top = Decimal(10) ** whole
        fits = [text for text in fits if abs(Decimal(text)) < top]
        kind = f"decimal({whole + scale},{scale})"
        found[kind] = [(text, Decimal(text)) for text in fits]
    doubles = [5e-324, 1.7976931348623157e308, 0.1, 1e23, -0.0, 9007199254740993.0]
    doubles += [struct.unpack("d", chance.randbytes(8))[0] for _ in range(20)]
    doubles = [each for each in doubles if each - each == 0]
    found["double"] = [(repr(each), each) for each in doubles]
    found["float"] = [
        (repr(each), float32(each)) for each in doubles if 1e-30 < abs(each) < 3e38
    ] + [("3.4028235e38", float32(3.4028235e38)), ("16777217", 16777216.0)]
    texts = [text for texts in list(found.values()) for text, _ in texts]
    # Whole numbers of any length, and such as a double has not.
    texts += ["1" * 400, "1e999", "1e-999", "1." + "0" * 30, "90071992547409.93"]
    found["string"] = [(text, text) for text in texts]
    return found


def words(seed):
    """Texts that JSON has in quotes, by type: what each is."""
    chance = random.Random(seed)
    signs = 'aé漢😀"\\\n\t/ ,:[]{}-01.5eE\x7f\x01'
    texts = ["", " ", "1.10", "-0", "[1.50]", '{"a":2.50}', '"', "\\", "n" + "0" * 32, "true"]
    texts += ["".join(chance.choice(signs) for _ in range(30)) for _ in range(30)]
    times = list(moments(chance))
    days = [dt.date(1, 1, 1), dt.date(9999, 12, 31), *(at.date() for at in times)]
    walls = [at.replace(tzinfo=None) for at in times]
    # An hour that Berlin and New York have not, and one that they have twice.
    for hour in ("2024-03-31T02:30", "2024-10-27T02:30", "2024-03-10T02:30", "2024-11-03T01:30"):
        walls.append(dt.datetime.fromisoformat(hour))
    return {
        "string": [(text, text) for text in texts],
        "boolean": [("true", True), ("false", False)],
        "date": [(day.isoformat().rjust(10, "0"), day) for day in days],
        "timestamp": [(at.isoformat(), at) for at in times],
        "timestamp_ntz": [(at.isoformat(), at) for at in walls],
        "double": [("Infinity", float("inf")), ("-Infinity", float("-inf"))],
    }


def every(found):
    return [(kind, text, value) for kind, pairs in found.items() for text, value in pairs]


def places(kind):
    """A type by itself, and everywhere that another may hold it."""
    return [
        ("v", kind),
        ("l", f"array<{kind}>"),
        ("s", f"struct<v:{kind},l:array<array<{kind}>>>"),
        ("m", f"map<string,array<{kind}>>"),
    ]


def inside(text):
    return (
        f'"v":{text},"l":[{text}, null],"s":{{"l":[[{text}]],"v":{text}}},"m":{{"1.50":[{text}]}}'
    )


def check_places(row, value, told):
    assert row[PROBLEM] is None, (told, row[PROBLEM])
    (key,) = row.m
    assert key == "1.50"
    got = [row.v, row.l[0], row.s.v, row.s.l[0][0], row.m[key][0]]
    assert row.l[1] is None
    assert [aware(each, told[0]) for each in got] == [value] * 5, told


def by_type(found):
    for kind, pairs in found.items():
        yield kind, [text for text, _ in pairs], [value for _, value in pairs]


@pytest.mark.parametrize("form", ["json", "debezium"])
def test_a_json_value_is_what_its_text_says_in_every_type_and_place(spark, form):
    seed = random.randrange(1 << 30)
    print("seed", seed)
    plain = [(kind, text, text, value) for kind, text, value in every(numbers(seed))]
    quoted = [
        (kind, json.dumps(text, ensure_ascii=at % 2 == 0), text, value)
        for at, (kind, text, value) in enumerate(every(numbers(seed)) + every(words(seed)))
    ]
    cases = plain + quoted
    for kind in dict.fromkeys(case[0] for case in cases):
        these = [case for case in cases if case[0] == kind]
        records = ["{" + inside(case[1]) + "}" for case in these]
        if form == "debezium":
            around = '{"payload":{"op":"c","ts_ms":1706688002000,"before":null,"after":%s}}'
            records = [around % each for each in records]
        options = {} if form == "json" else {"decimal_handling": "string"}
        rows = decoded(spark, form, places(kind), records, **options)
        for row, (_, _, text, value) in zip(rows, these, strict=True):
            check_places(row, value, (kind, text))


def test_a_separated_value_is_what_its_text_says(spark):
    seed = random.randrange(1 << 30)
    print("seed", seed)
    cases = every(numbers(seed)) + every(words(seed))
    for kind in dict.fromkeys(case[0] for case in cases):
        these = [(text, value) for each, text, value in cases if each == kind]
        # Without quotes, a line has neither of them, nor an end.
        these = [(t, v) for t, v in these if t.strip() == t and not set(t) & set('",\n\\') and t]
        rows = decoded(spark, "csv", [("v", kind), ("n", "int")], [f"{t},1" for t, _ in these])
        for row, (text, value) in zip(rows, these, strict=True):
            assert (row[PROBLEM], aware(row.v, kind)) == (None, value), (kind, text)


def test_keys_of_maps_are_what_their_texts_say(spark):
    pairs = [
        ("bigint", "9223372036854775807", (1 << 63) - 1),
        ("decimal(18,2)", "90071992547409.93", Decimal("90071992547409.93")),
        ("date", "2024-02-29", dt.date(2024, 2, 29)),
        ("string", "1.10", "1.10"),
    ]
    for kind, text, value in pairs:
        columns = [("m", f"map<{kind},string>")]
        (row,) = decoded(spark, "json", columns, [f'{{"m":{{"{text}":1.10}}}}'])
        assert (row[PROBLEM], row.m) == (None, {value: "1.10"})


@pytest.mark.parametrize("record", ['{"m":{"x":1}}', '{"m":{"1":1,"01":2}}', '{"m":{"":1}}'])
def test_keys_of_maps_that_do_not_fit_make_a_bad_record(spark, record):
    rows = decoded(spark, "json", [("m", "map<int,string>")], [record, '{"m":{"1":1}}'])
    assert rows[0][PROBLEM].startswith("column m: ")
    assert (rows[1].m, rows[1][PROBLEM]) == ({1: "1"}, None)


def test_objects_in_text_columns_keep_their_numbers(spark):
    text = '{"a":1.10,"b":["1.50",-0.0,1E5,{"c":1234567890123456.78}],"d":"\\"2.50"}'
    record = f'{{"v": {text}, "w": 1.5e-3}}'
    (row,) = decoded(spark, "json", [("v", "string"), ("w", "string")], [record])
    assert (row.v, row.w) == (text, "1.5e-3")


def test_a_variant_keeps_decimals(spark):
    record = '{"v":{"a":90071992547409.93,"b":"1.50","c":[7,1.25]},"n":1.10}'
    rows = decoded(spark, "json", [("v", "variant"), ("n", "string")], [record])
    assert json.loads(rows[0].v.toJson(), parse_float=str) == {
        "a": "90071992547409.93",
        "b": "1.50",
        "c": [7, "1.25"],
    }
    assert rows[0].n == "1.10"


LOSSES = [
    ("decimal(10,2)", "12.345"),
    ("decimal(10,2)", "1e-3"),
    ("decimal(10,2)", "12345e-4"),
    ("decimal(10,2)", "123456789.01"),
    ("decimal(18,2)", "9999999999999999.999"),
    ("decimal(38,38)", "0." + "1" * 39),
    ("decimal(10,0)", "0.5"),
    ("decimal(10,2)", "1e999999999999999999999"),
    ("double", "1e400"),
    ("float", "1e39"),
    ("date", "2024-01-01T10:00:00Z"),
    ("date", "2024-01-01 BC"),
    ("timestamp_ntz", "2024-01-01T10:00:00+02:00"),
    ("int", "1.5"),
    ("bigint", "9223372036854775808"),
]


@pytest.mark.parametrize("form", ["json", "csv", "debezium"])
def test_what_would_be_cut_or_rounded_is_a_bad_record(spark, form):
    columns = [(f"c{at}", kind) for at, (kind, _) in enumerate(LOSSES)]
    records = []
    for at, (_, text) in enumerate(LOSSES):
        if form == "csv":
            records.append("," * at + text + "," * (len(LOSSES) - at - 1))
            continue
        bare = text if set(text) <= set("0123456789.e-") and "-0" not in text else f'"{text}"'
        record = f'{{"c{at}":{bare}}}'
        records.append(record if form == "json" else f'{{"op":"c","after":{record}}}')
    rows = decoded(spark, form, columns, records)
    for at, (row, (kind, text)) in enumerate(zip(rows, LOSSES, strict=True)):
        told = f"column c{at}: {text} is not of type {kind}"
        assert (row[PROBLEM], row[f"c{at}"]) == (told, None)


def test_what_is_next_to_its_type_fits_still(spark):
    cases = [
        ("decimal(10,2)", "12.340000", Decimal("12.34")),
        ("decimal(10,2)", "1234e-2", Decimal("12.34")),
        ("decimal(10,0)", "1200e-2", Decimal(12)),
        ("date", "2024-01-01T00:00:00.000Z", dt.date(2024, 1, 1)),
        ("timestamp_ntz", "2024-01-01T10:00:00Z", dt.datetime(2024, 1, 1, 10)),  # noqa: DTZ001
    ]
    for kind, text, value in cases:
        (row,) = decoded(spark, "json", [("v", kind)], [f'{{"v":"{text}"}}'])
        assert (row[PROBLEM], row.v) == (None, value)


def test_texts_that_look_like_the_marks_of_numbers_stay_as_they_are(spark):
    texts = ["n" + "0" * 32 + "1.5", '"n' + "f" * 32, "$1", "\\u0000", "1.5}"]
    records = [json.dumps({"v": text, "w": 2.50}) for text in texts]
    rows = decoded(spark, "json", [("v", "string"), ("w", "string")], records)
    assert [(row.v, row.w) for row in rows] == [(text, "2.5") for text in texts]


def test_a_long_record_is_read(spark):
    long = '\\"1.5' * 200_000
    many = ",".join(["1.50"] * 100_000)
    record = f'{{"v":"{long}","l":[{many}],"w":2.50}}'
    columns = [("v", "string"), ("l", "array<decimal(10,2)>"), ("w", "string")]
    (row,) = decoded(spark, "json", columns, [record])
    assert (row[PROBLEM], len(row.v), row.w) == (None, 800_000, "2.50")
    assert row.l == [Decimal("1.50")] * 100_000


AVRO = {
    "type": "record",
    "name": "r",
    "fields": [
        {"name": "whole", "type": "long"},
        {"name": "real", "type": "double"},
        {"name": "text", "type": "string"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {
            "name": "amount",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 18, "scale": 3},
        },
    ],
}
NOON = dt.datetime(2024, 1, 1, 12, tzinfo=dt.timezone.utc)


def datum(**given):
    record = {"whole": 1, "real": 1.0, "text": "1", "at": NOON, "amount": Decimal(1), **given}
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(AVRO), record)
    return out.getvalue()


def test_an_avro_value_that_another_type_would_cut_is_a_bad_record(spark, tmp_path):
    path = tmp_path / "r.avsc"
    path.write_text(json.dumps(AVRO))
    for column, kind, good, bad in (
        ("whole", "int", 7, 1 << 40),
        ("whole", "double", 7, None),
        ("real", "decimal(10,2)", 12.34, 12.345),
        ("real", "int", 12.0, 12.5),
        ("real", "float", 0.1, 1e300),
        ("amount", "decimal(10,2)", Decimal("12.340"), Decimal("12.345")),
        ("amount", "bigint", Decimal("12.000"), Decimal("12.500")),
        ("text", "decimal(10,2)", "12.34", "12.345"),
        ("at", "date", dt.datetime(2024, 1, 1, tzinfo=dt.timezone.utc), None),
    ):
        records = [datum(**{column: each}) for each in (good, bad) if each is not None]
        rows = decoded(spark, "avro", [(column, kind)], records, schema_file=str(path))
        assert (rows[0][PROBLEM], rows[0][column] is None) == (None, False), (column, kind)
        for row in rows[1:]:
            assert row[PROBLEM].endswith(f" is not of type {kind}"), (column, kind)
