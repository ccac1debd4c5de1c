"""What records hold becomes columns; what does not fit is told, and never NULL in silence."""

from __future__ import annotations

import base64
import datetime as dt
import decimal
import io
import json

import fastavro
import pytest

from dbt_streamsql.connectors.options import Options
from dbt_streamsql.connectors.sources.formats.decoding import VALUE
from dbt_streamsql.connectors.sources.formats.registry import format_of
from dbt_streamsql.connectors.sources.source import AT, PROBLEM, RAW
from dbt_streamsql.errors import Place, StreamSqlError
from tests.support.streams import SPARSE

pytestmark = pytest.mark.spark

KNOWN = ("json", "csv", "avro", "debezium", "raw", "text")


def moment(*parts):
    return dt.datetime(*parts, tzinfo=dt.timezone.utc)


def aware(value):
    """A time as Spark gives it, which is in the zone of this machine."""
    return value.astimezone(dt.timezone.utc) if isinstance(value, dt.datetime) else value


def declared(kind, columns=(), schema="", **options):
    spec = {
        "connector": "kafka",
        "format": kind,
        "columns": columns,
        "schema": schema,
        "options": options,
    }
    given = Options(spec, Place("a_stream"))
    found = format_of(given, KNOWN)
    given.check()
    return found


def decoded(spark, found, values):
    """The rows that these records become, in order; each has its number under AT."""
    rows = [
        (number, bytearray(value.encode()) if isinstance(value, str) else value)
        for number, value in enumerate(values)
    ]
    frame = spark.createDataFrame(rows, f"`{AT}` BIGINT, `{VALUE}` BINARY")
    got = found.decode(spark, frame, ())
    names = [name for name, _ in found.columns(spark)]
    assert got.columns in ([*names, RAW, AT, PROBLEM, *more] for more in SPARSE)
    kinds = {f.name: f.dataType.simpleString() for f in got.schema}
    assert {name: kinds[name] for name in names} == dict(found.columns(spark))
    return sorted(got.collect(), key=lambda row: int(row[AT]))


def one(spark, kind, value, name="v", **options):
    """(value, problem) of a JSON record with one column."""
    (row,) = decoded(spark, declared("json", [(name, kind)], **options), [value])
    assert row[RAW] == value
    return aware(row[name]), row[PROBLEM]


GOOD = [
    ("tinyint", "-128", -128),
    ("bigint", "9223372036854775807", 9223372036854775807),
    ("bigint", '"12"', 12),
    ("double", "1.5e3", 1500.0),
    ("decimal(5,2)", "123.45", decimal.Decimal("123.45")),
    ("decimal(38,0)", "1" * 38, decimal.Decimal("1" * 38)),
    ("boolean", "true", True),
    ("string", '"a\\"ü\\n"', 'a"ü\n'),
    ("string", "17", "17"),
    ("string", '{"a":[1]}', '{"a":[1]}'),
    ("date", '"2024-02-29"', dt.date(2024, 2, 29)),
    ("timestamp", '"2024-01-01T10:00:00Z"', moment(2024, 1, 1, 10)),
    ("timestamp_ntz", '"2024-01-01T10:00:00"', dt.datetime(2024, 1, 1, 10)),  # noqa: DTZ001
    ("binary", '"AAEC"', bytearray(b"\x00\x01\x02")),
    ("array<int>", "[1,null]", [1, None]),
    ("struct<a:int,b:string>", '{"a":1}', (1, None)),
    ("map<string,int>", '{"x":1}', {"x": 1}),
]


def test_values_of_every_type_are_read(spark):
    columns = [(f"c{at}", kind) for at, (kind, _, _) in enumerate(GOOD)]
    text = ",".join(f'"c{at}":{value}' for at, (_, value, _) in enumerate(GOOD))
    (row,) = decoded(spark, declared("json", columns), ["{" + text + "}"])
    assert row[PROBLEM] is None
    for at, (kind, _, value) in enumerate(GOOD):
        got = row[f"c{at}"]
        assert (aware(got) if kind == "timestamp" else got) == value, kind


BAD = [
    ("tinyint", "128"),
    ("int", "1.5"),
    ("int", '"x"'),
    ("int", '""'),
    ("bigint", "12345678901234567890"),
    ("double", '"one"'),
    ("decimal(5,2)", "1234.5"),
    ("boolean", "17"),
    ("date", '"2024-02-30"'),
    ("timestamp", '"yesterday"'),
    ("timestamp", '"10:00"'),
    ("date", '"2024"'),
    ("binary", '"?"'),
    ("array<int>", '[1,"x"]'),
    ("array<int>", '"none"'),
    ("struct<a:int>", '{"a":"x"}'),
    ("struct<a:struct<b:date>>", '{"a":{"b":"2024-13-01"}}'),
    ("map<string,int>", '{"k":"x"}'),
    ("int", "{}"),
]


def test_a_value_that_does_not_fit_its_type_names_its_column(spark):
    columns = [(f"c{at}", kind) for at, (kind, _) in enumerate(BAD)]
    values = [f'{{"c{at}":{value}}}' for at, (_, value) in enumerate(BAD)]
    rows = decoded(spark, declared("json", columns), values)
    for at, (row, (kind, value)) in enumerate(zip(rows, BAD, strict=True)):
        assert row[PROBLEM] is not None, (kind, value)
        assert row[PROBLEM].startswith(f"column c{at}: "), row[PROBLEM]
        assert row[PROBLEM].endswith(f" is not of type {kind}")
        assert row[RAW] == values[at]
        assert all(row[name] is None for name, _ in columns)


def test_missing_fields_and_nulls_are_null_and_unknown_fields_are_left(spark):
    columns = [("a", "int"), ("b", "string"), ("c", "array<int>")]
    values = ["{}", '{"a":null,"b":null,"c":null}', '{"z":1,"b":"x"}']
    rows = decoded(spark, declared("json", columns), values)
    assert [(r.a, r.b, r.c) for r in rows] == [(None,) * 3, (None,) * 3, (None, "x", None)]
    assert all(row[PROBLEM] is None for row in rows)


NO_OBJECTS = [
    "{bad",
    '{"a":1,}',
    "{'a':1}",
    '{"a":NaN}',
    '{"a":1},{"a":2}',
    '\ufeff{"a":1}',
    '{"a":1} junk',
    '{"a":1}{"a":2}',
    '[{"a":1}]',
    "[]",
    '"x"',
    "3",
    "null",
    "",
    "  ",
    '{"a":1',
]


@pytest.mark.parametrize("columns", [[("a", "int")], [("a", "int"), ("n", "array<int>")]])
def test_what_is_no_json_object_is_told(spark, columns):
    rows = decoded(spark, declared("json", columns), NO_OBJECTS)
    for row, value in zip(rows, NO_OBJECTS, strict=True):
        assert row[PROBLEM] == "it is not a JSON object", value
        assert row[RAW] == value
        assert row.a is None


def test_bytes_that_are_no_text_are_told(spark):
    (row,) = decoded(spark, declared("json", [("a", "string")]), [b'{"a":"\xff"}'])
    assert (row.a, row[PROBLEM]) == (None, "it is not UTF-8")
    assert base64.b64decode(row[RAW]) == b'{"a":"\xff"}'


def test_a_good_record_is_not_touched_by_a_bad_neighbour(spark):
    rows = decoded(spark, declared("json", [("a", "int")]), ['{"a":1}', "no", '{"a":2}'])
    assert [(r.a, r[PROBLEM] is None) for r in rows] == [(1, True), (None, False), (2, True)]


def test_a_record_without_a_value_has_null_in_all_columns(spark):
    for kind in ("json", "csv"):
        (row,) = decoded(spark, declared(kind, [("a", "int")]), [None])
        assert (row.a, row[RAW], row[PROBLEM]) == (None, None, None)


def test_times_are_read_as_they_are_written(spark):
    at = moment(2024, 1, 31, 8, 0, 1)
    for written, value in (
        ("epoch_s", "1706688001"),
        ("epoch_ms", "1706688001000"),
        ("epoch_us", "1706688001000000"),
        ("dd/MM/yyyy HH:mm:ss", '"31/01/2024 08:00:01"'),
    ):
        record = f'{{"v":{value}}}'
        assert one(spark, "timestamp", record, timestamp_format=written) == (at, None)
    day = one(spark, "date", '{"v":"31.01.2024"}', date_format="dd.MM.yyyy")
    assert day == (at.date(), None)
    value, problem = one(spark, "date", '{"v":"2024-01-31"}', date_format="dd.MM.yyyy")
    assert value is None
    assert problem == "column v: 2024-01-31 is not of type date"


def test_names_of_columns_may_be_strange(spark):
    columns = [("a.b", "int"), ("c d", "string"), ("e`f", "array<int>"), ("select", "int")]
    record = {"a.b": 1, "c d": "x", "e`f": [2], "select": 3}
    (row,) = decoded(spark, declared("json", columns), [json.dumps(record)])
    assert (row["a.b"], row["c d"], row["e`f"], row["select"]) == (1, "x", [2], 3)


def test_a_schema_may_be_one_text(spark):
    found = declared("json", schema="id BIGINT, tags ARRAY<STRING>")
    assert found.columns(spark) == (("id", "bigint"), ("tags", "array<string>"))


def test_separated_values_are_read_in_order(spark):
    found = declared("csv", [("a", "int"), ("b", "string")])
    values = ["1,x", '2,"x, ""y"""', "3,", ",", '4,""']
    rows = decoded(spark, found, values)
    assert [r[PROBLEM] for r in rows] == [None] * 5
    assert [(r.a, r.b) for r in rows] == [
        (1, "x"),
        (2, 'x, "y"'),
        (3, None),
        (None, None),
        (4, None),
    ]
    other = declared("csv", [("a", "int"), ("b", "string")], separator=";", null_value="-")
    (row,) = decoded(spark, other, ["-;x,y"])
    assert (row.a, row.b) == (None, "x,y")


def test_separated_values_that_do_not_fit_are_told(spark):
    found = declared("csv", [("a", "int"), ("b", "string")])
    rows = decoded(spark, found, ["1", "1,2,3", "x,y"])
    assert "does not have 2 fields" in rows[0][PROBLEM]
    assert "does not have 2 fields" in rows[1][PROBLEM]
    assert rows[2][PROBLEM] == "column a: x is not of type int"


def change(op, before=None, after=None, **source):
    return {
        "op": op,
        "before": before,
        "after": after,
        "ts_ms": 1706688002000,
        "source": {"ts_ms": 1706688001000, **source},
    }


@pytest.mark.parametrize("wrapped", [False, True])
def test_changes_as_debezium_writes_them(spark, wrapped):
    old, new = {"id": 1, "tags": ["a"]}, {"id": 1, "tags": ["b"]}
    changes = [
        change("r", None, old, lsn=5),
        change("c", None, old, lsn=7),
        change("u", old, new, lsn=8),
        change("d", new, None, lsn=9),
        change("t"),
    ]
    if wrapped:
        changes = [{"schema": {"type": "struct"}, "payload": each} for each in changes]
    found = declared("debezium", [("id", "int"), ("tags", "array<string>")])
    rows = decoded(spark, found, [*map(json.dumps, changes), None])
    assert [row[PROBLEM] for row in rows] == [None] * 5
    assert [(r._op, r.id, r.tags, r._lsn) for r in rows] == [
        ("r", 1, ["a"], 5),
        ("c", 1, ["a"], 7),
        ("u", 1, ["b"], 8),
        ("d", 1, ["b"], 9),
        ("t", None, None, None),
    ]
    assert {aware(row._ts) for row in rows} == {moment(2024, 1, 31, 8, 0, 1)}
    assert json.loads(rows[0]._source)["lsn"] == 5


def test_what_is_no_change_is_told(spark):
    cases = {
        '{"id":1}': "it is not a Debezium change: `op` is missing",
        json.dumps(change("x", None, {"id": 1})): "`op` is x",
        json.dumps(change("d")): "a delete without `before`",
        json.dumps(change("u", {"id": 1})): "a change without `after`",
        json.dumps(change("c", None, {"id": "one"})): "column id: one is not of type int",
        json.dumps(change("c", None, {"tags": [{}, 1]})): "column tags: ",
        json.dumps(change("c", None, 5)): "not a JSON object",
        "{bad": "it is not a JSON object",
        '{"payload":null}': "`op` is missing",
    }
    found = declared("debezium", [("id", "int"), ("tags", "array<int>")])
    rows = decoded(spark, found, list(cases))
    for row, told in zip(rows, cases.values(), strict=True):
        assert told in (row[PROBLEM] or "nothing"), row
        assert (row.id, row._op, row._ts) == (None, None, None)


V1 = {
    "type": "record",
    "name": "click",
    "fields": [{"name": "id", "type": "long"}, {"name": "url", "type": "string"}],
}
V2 = {
    "type": "record",
    "name": "click",
    "fields": [*V1["fields"], {"name": "user", "type": ["null", "string"], "default": None}],
}


def datum(schema, record, number=None):
    out = io.BytesIO()
    if number is not None:
        out.write(b"\x00" + number.to_bytes(4, "big"))
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), record)
    return out.getvalue()


@pytest.fixture
def schemas(tmp_path):
    paths = {}
    for number, schema in ((1, V1), (7, V2)):
        paths[number] = str(tmp_path / f"click-{number}.avsc")
        (tmp_path / f"click-{number}.avsc").write_text(json.dumps(schema))
    return paths


def test_avro_is_read_by_the_schema_of_a_file(spark, schemas):
    found = declared("avro", schema_file=schemas[1])
    assert found.columns(spark) == (("id", "bigint"), ("url", "string"))
    good = datum(V1, {"id": 3, "url": "/é"})
    rows = decoded(spark, found, [good, b"\x02", None])
    assert (rows[0].id, rows[0].url, rows[0][PROBLEM]) == (3, "/é", None)
    assert rows[1][PROBLEM] == "it does not match its Avro schema"
    assert (rows[2].id, rows[2][PROBLEM]) == (None, None)
    assert base64.b64decode(rows[0][RAW]) == good


def test_avro_with_confluents_header_is_read_by_the_schema_that_it_names(spark, schemas):
    found = declared("avro", schema_files=schemas)
    assert [name for name, _ in found.columns(spark)] == ["id", "url", "user"]
    values = [
        datum(V1, {"id": 1, "url": "/a"}, 1),
        datum(V2, {"id": 2, "url": "/b", "user": "u"}, 7),
        datum(V1, {"id": 3, "url": "/c"}, 4),
        datum(V1, {"id": 4, "url": "/d"}),
        b"\x00\x00",
        None,
    ]
    rows = decoded(spark, found, values)
    assert [(r.id, r.url, r.user) for r in rows[:2]] == [(1, "/a", None), (2, "/b", "u")]
    assert [r[PROBLEM] for r in rows] == [
        None,
        None,
        "schema 4 is not in `schema_files`",
        "it does not begin with Confluent's five bytes",
        "it does not begin with Confluent's five bytes",
        None,
    ]


def test_avro_fields_take_the_types_that_are_declared(spark, schemas):
    found = declared("avro", [("url", "string"), ("id", "tinyint")], schema_file=schemas[1])
    values = [datum(V1, {"id": number, "url": "/"}) for number in (3, 300)]
    rows = decoded(spark, found, values)
    assert (rows[0].url, rows[0].id, rows[0][PROBLEM]) == ("/", 3, None)
    assert rows[1][PROBLEM] == "column id: 300 is not of type tinyint"
    with pytest.raises(StreamSqlError, match="no such field"):
        declared("avro", [("nope", "int")], schema_file=schemas[1]).columns(spark)


def test_everything_wrong_with_a_format_is_told_at_once(tmp_path, schemas):
    bad = tmp_path / "bad.avsc"
    bad.write_text('"string"')
    for kind, options, told in (
        ("", {}, ["`format` is missing", "avro"]),
        ("xml", {"x": 1}, ["`format` is 'xml'", "`x` is not known"]),
        (
            "json",
            {"timestamp_fromat": "y"},
            ["no column has a type", "do you mean `timestamp_format`"],
        ),
        ("avro", {}, ["`schema_file` is missing"]),
        ("avro", {"schema_file": str(bad)}, ["not the schema of a record"]),
        ("avro", {"schema_file": "/none.avsc"}, ["cannot be read"]),
        (
            "avro",
            {"wire_format": "confluent", "schema_file": schemas[1]},
            ["`schema_files` is missing"],
        ),
        ("avro", {"schema_files": {"one": schemas[1]}}, ["the key 'one'"]),
    ):
        with pytest.raises(StreamSqlError) as caught:
            declared(kind, **options)
        assert caught.value.code == "CONFIG_INVALID"
        for each in told:
            assert each in str(caught.value)


def test_a_type_that_there_is_not_is_refused(spark):
    for options in ({"columns": [("a", "intt")]}, {"schema": "a intt"}):
        with pytest.raises(StreamSqlError) as caught:
            declared("json", **options).columns(spark)
        assert caught.value.code == "CONFIG_INVALID"
        assert "intt" in caught.value.given
