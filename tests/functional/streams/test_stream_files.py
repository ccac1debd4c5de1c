"""Files in a folder are read once each, whatever their names and times, and nothing in silence."""

from __future__ import annotations

import gzip
import json
import os
import random
import shutil
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dbt_streamsql.connectors.sources.files import folder_listing
from dbt_streamsql.connectors.sources.source import AT, PROBLEM, RAW
from dbt_streamsql.errors import StreamSqlError
from tests.support.steps import dying
from tests.support.streams import opened, problems, records, through

pytestmark = pytest.mark.spark

STRANGE = "a b+c%20ü[1]{x}*?$'`\"#&=.json"


class Folder:
    """A folder that files arrive in."""

    def __init__(self, path):
        self.path = path
        self.time = 1_700_000_000
        path.mkdir()

    def put(self, name, content, at=None):
        """Write a file. `at`: its time in seconds; a second after the one before."""
        self.time += 1
        file = self.path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, list):
            content = "".join(f'{{"id":{number}}}\n' for number in content)
        file.write_bytes(content.encode() if isinstance(content, str) else content)
        os.utime(file, (at or self.time, at or self.time))
        return file


@pytest.fixture
def folder(tmp_path):
    return Folder(tmp_path / "in")


@pytest.fixture
def stream(folder, tmp_path):
    """What opens the folder as a stream; its lists of files are the test's own."""

    def declared(fmt="json", columns=(("id", "int"),), path=None, **options):
        own = {"path": str(path or folder.path), "ledger": str(tmp_path / "ledger"), **options}
        return opened("files", columns, fmt=fmt, **own)

    return declared


def ids(rows):
    return sorted(row[0] for row in rows)


def test_each_new_file_is_read_once(spark, folder, stream):
    found = stream()
    folder.put("a.json", [1, 2])
    first, at = through(found, spark, "id")
    assert ids(first) == [1, 2]
    assert found.end(spark, at) is None
    folder.put("b.json", [3])
    folder.put("sub/c.json", [4])
    more, at = through(found, spark, "id", after=at)
    assert ids(more) == [3, 4]
    assert found.end(spark, at) is None


def test_a_file_that_comes_with_an_earlier_time_is_read_too(spark, folder, stream):
    found = stream()
    folder.put("a.json", [1])
    _, at = through(found, spark)
    folder.put("b.json", [2], at=1_000_000_000)
    folder.put("a0.json", [3], at=folder.time - 1)
    rows, _ = through(found, spark, "id", after=at)
    assert ids(rows) == [2, 3]


def test_the_oldest_files_come_first_when_a_barrier_is_bounded(spark, folder, stream):
    found = stream(max_files_per_barrier=2)
    for number, at in ((1, 500), (2, 100), (3, 300), (4, 400), (5, 200)):
        folder.put(f"{number}.json", [number], at=1_700_000_000 + at)
    at, order = None, []
    while (end := found.end(spark, at)) is not None:
        assert found.end(spark, at).oldest == end.oldest
        order.append(ids(records(found, spark, at, end.position, "id")))
        at = end.position
    assert order == [[2, 5], [3, 4], [1]]


def test_nothing_is_lost_or_doubled_over_many_barriers(spark, folder, stream):
    rng = random.Random(7)
    found = replace(stream(max_files_per_barrier=3), fan=3)
    at, positions, total, sizes = None, [], [], []
    for number in range(60):
        for part in range(rng.choice([0, 1, 2])):
            folder.put(f"{rng.random()}.json", [number * 10 + part], at=rng.randrange(10**9))
        end = found.end(spark, at)
        if end is None:
            continue
        if rng.random() < 0.3:
            continue  # the barrier was given up
        sizes.append(len(json.dumps(end.position)))
        positions.append(end.position)
        if number % 6 == 0:
            total += records(found, spark, at, end.position, "id")
        else:
            total += [
                (int(e[len('{"id":') : -2]),) for e in _texts(found, spark, at, end.position)
            ]
        found.release(spark, end.position)
        at = end.position
    rest, at = through(found, spark, "id", after=at)
    expected = sorted(
        json.loads(file.read_text())["id"] for file in folder.path.iterdir() if file.is_file()
    )
    assert ids(total + rest) == expected
    assert max(sizes) < 500
    # From any earlier position, what came after it, also across lists that were merged.
    middle = len(positions) // 2
    late = ids(records(found, spark, positions[middle], at, "id"))
    early = ids(records(found, spark, None, positions[0], "id"))
    assert late == sorted(set(expected) - set(_before(found, spark, positions[middle])))
    assert set(early) <= set(expected)


def _texts(found, spark, after, upto):
    """The contents of a barrier's files, without Spark, which would take a second each time."""
    known = found._ledger(spark).read(upto["new"]) if upto["new"] else {}
    return [Path(path).read_text() for path in known]


def _before(found, spark, position):
    seen = found._seen(found._ledger(spark), position)
    return [json.loads(Path(path).read_text())["id"] for path in seen]


def test_a_position_stays_small_and_end_is_quick_with_very_many_files(spark, folder, stream):
    for number in range(20_000):
        (folder.path / f"{number}.json").touch()
    found = stream()
    end = found.end(spark, None)
    assert len(json.dumps(end.position)) < 200
    assert found.end(spark, end.position) is None
    assert len(found._seen(found._ledger(spark), end.position)) == 20_000


def test_reading_begins_where_start_says(spark, folder, stream):
    folder.put("a.json", [1], at=1_700_000_000)
    folder.put("b.json", [2], at=1_700_000_100)
    for start, first in (
        ("earliest", [1, 2]),
        ("latest", []),
        ("2023-11-14T22:15:00Z", [2]),
    ):
        found = stream(start=start, ledger=str(folder.path.parent / start[:4]))
        end = found.end(spark, None)
        assert ids(records(found, spark, None, end.position, "id")) == first
        file = folder.put("c.json", [3])
        rows, _ = through(found, spark, "id", after=end.position)
        assert ids(rows) == [3]
        file.unlink()


def test_an_empty_folder_is_a_beginning_and_no_folder_is_an_error(spark, folder, stream):
    found = stream()
    end = found.end(spark, None)
    assert (end.records, records(found, spark, None, end.position)) == (0, [])
    folder.put("a.json", [1])
    rows, _ = through(found, spark, "id", after=end.position)
    assert ids(rows) == [1]
    with pytest.raises(StreamSqlError) as caught:
        stream(path=folder.path / "none").end(spark, None)
    assert caught.value.code == "TABLE_MISSING"


def test_names_of_files_may_be_strange(spark, folder, stream):
    folder.put(STRANGE, [1])
    folder.put("aXb.json", [2])
    found = stream()
    rows, at = through(found, spark, "id", "_file")
    assert sorted(rows) == [(1, str(folder.path / STRANGE)), (2, str(folder.path / "aXb.json"))]
    assert found.end(spark, at) is None


def test_hidden_files_and_other_names_are_left(spark, folder, stream):
    folder.put(".a.json", [1])
    folder.put("_a.json", [2])
    folder.put("_temporary/a.json", [3])
    folder.put("a.txt", "not ours")
    folder.put("a.json", [4])
    rows, _ = through(stream(path=folder.path / "*.json"), spark, "id")
    assert ids(rows) == [4]


@pytest.mark.parametrize("what", ["rewritten", "gone"])
def test_a_file_that_changes_between_recording_and_reading_is_named(spark, folder, stream, what):
    file = folder.put("a.json", [1])
    found = stream()
    end = found.end(spark, None)
    if what == "gone":
        file.unlink()
    else:
        folder.put("a.json", [1, 2])
    with pytest.raises(StreamSqlError) as caught:
        found.read(spark, None, end.position)
    assert caught.value.code == "STREAM_CHANGED"
    assert what in caught.value.message
    assert caught.value.given == str(file)


def test_a_file_that_is_rewritten_after_it_was_read_is_named_or_passed_over(spark, folder, stream):
    folder.put("a.json", [1])
    _, at = through(stream(), spark)
    folder.put("a.json", [1, 2])
    with pytest.raises(StreamSqlError) as caught:
        stream().end(spark, at)
    assert caught.value.code == "STREAM_CHANGED"
    assert caught.value.given.endswith("a.json")
    assert stream(on_rewrite="ignore").end(spark, at) is None


def test_a_file_that_was_read_may_go(spark, folder, stream):
    file = folder.put("a.json", [1])
    _, at = through(stream(), spark)
    file.unlink()
    assert stream().end(spark, at) is None


def test_files_that_are_still_written_are_waited_for(spark, folder, stream):
    folder.put("a.json", [1])
    new = folder.put("b.json", [2])
    os.utime(new)
    found = stream(min_age="1 hour")
    rows, at = through(found, spark, "id")
    assert ids(rows) == [1]
    os.utime(new, (1_700_000_000, 1_700_000_000))
    rows, _ = through(found, spark, "id", after=at)
    assert ids(rows) == [2]


def test_a_lost_list_is_no_new_beginning(spark, folder, stream, tmp_path):
    folder.put("a.json", [1])
    _, at = through(stream(), spark)
    shutil.rmtree(tmp_path / "ledger")
    folder_listing._listed.cache_clear()
    with pytest.raises(StreamSqlError) as caught:
        stream().end(spark, at)
    assert caught.value.code == "STREAM_LOST"


def test_bad_lines_are_told_by_file_and_line(spark, folder, stream):
    folder.put("x/a.json", '\ufeff{"id":1}\r\n\r\n{"id":"one"}\r\n{bad')
    found = stream()
    end = found.end(spark, None)
    assert [row[0] for row in records(found, spark, None, end.position, "id") if row[0]] == [1]
    assert problems(found, spark, None, end.position) == [
        ("x/a.json:3", "column id: one is not of type int"),
        ("x/a.json:4", "it is not a JSON object"),
    ]


def test_a_line_that_is_no_text_is_told_and_its_neighbours_are_read(spark, folder, stream):
    columns = [("id", "int"), ("name", "string")]
    folder.put("a.json", b'{"id":1,"name":"\xc3\xa9"}\n{"id":2,"name":"\xff"}\n')
    folder.put("a.csv", b"id,name\n1,\xc3\xa9\n2,\xff\n")
    for kind, at, whole in (
        ("json", "a.json:2", {}),
        ("json", "a.json", {"whole": 5}),
        ("csv", "a.csv", {}),
    ):
        found = stream(kind, columns, path=folder.path / f"a.{kind}")
        found = replace(found, reader=replace(found.reader, **whole))
        end = found.end(spark, None)
        rows = records(found, spark, None, end.position, "id", "name")
        assert sorted(row for row in rows if row[0]) == [(1, "é")]
        assert problems(found, spark, None, end.position) == [(at, "it is not UTF-8")]


def test_big_files_are_read_line_by_line_without_numbers(spark, folder, stream):
    folder.put("small.json", [1])
    folder.put("big.json", '{"id":2}\n\n{"id":3}\n{"id":"four"}\n')
    found = stream()
    found = replace(found, reader=replace(found.reader, whole=20))
    end = found.end(spark, None)
    rows = records(found, spark, None, end.position, "id")
    assert sorted(row[0] for row in rows if row[0]) == [1, 2, 3]
    assert problems(found, spark, None, end.position) == [
        ("big.json", "column id: four is not of type int")
    ]


def test_text_and_compressed_files_are_read(spark, folder, stream):
    folder.put("a.txt", "one\n\n two \n")
    folder.put("b.txt.gz", gzip.compress(b"three\n"))
    rows, _ = through(stream("text", ()), spark, "value")
    assert sorted(rows) == [(" two ",), ("one",), ("three",)]


def test_separated_values_with_a_header_are_read(spark, folder, stream):
    columns = [("id", "int"), ("name", "string")]
    folder.put("a.csv", 'id,name\n1,x\n2,"y\nz"\nthree,w\n4\n')
    found = stream("csv", columns, multi_line=True)
    end = found.end(spark, None)
    rows = records(found, spark, None, end.position, "id", "name")
    assert sorted(row for row in rows if row[0]) == [(1, "x"), (2, "y\nz")]
    told = problems(found, spark, None, end.position)
    assert [at for at, _ in told] == ["a.csv", "a.csv"]
    assert sorted(why for _, why in told) == [
        "column id: three is not of type int",
        "it does not have 2 fields, or a quote is not closed",
    ]
    plain = stream("csv", columns, header=False, path=folder.path / "b.csv")
    folder.put("b.csv", "5,v\n")
    assert ids(through(plain, spark, "id")[0]) == [5]


def test_a_header_with_other_names_is_refused(spark, folder, stream):
    folder.put("a.csv", "name,id\nx,1\n")
    found = stream("csv", [("id", "int"), ("name", "string")])
    end = found.end(spark, None)
    with pytest.raises(Exception, match=r"(?s)header does not conform.*a\.csv"):
        found.read(spark, None, end.position).collect()


def table_file(folder, file, **columns):
    path = folder.path / file
    pq.write_table(pa.table(columns), path)
    folder.time += 1
    os.utime(path, (folder.time, folder.time))


def test_parquet_files_are_read_by_their_own_columns(spark, folder, stream):
    table_file(folder, "a.parquet", id=[1, 2], name=["x", None])
    found = stream("parquet", ())
    assert found.columns(spark)[:2] == (("id", "bigint"), ("name", "string"))
    rows, at = through(found, spark, "id", "name")
    assert sorted(rows) == [(1, "x"), (2, None)]
    table_file(folder, "b.parquet", id=[3])
    table_file(folder, "c.parquet", id=[4], name=["y"], more=[1.5])
    rows, _ = through(found, spark, "id", "name", after=at)
    assert sorted(rows) == [(3, None), (4, "y")]


def test_parquet_values_that_do_not_fit_are_told(spark, folder, stream):
    table_file(folder, "a.parquet", id=pa.array([1, 300], pa.int32()))
    table_file(folder, "b.parquet", id=["7", "x"])
    found = stream("parquet", [("id", "tinyint")])
    end = found.end(spark, None)
    rows = records(found, spark, None, end.position, "id")
    assert sorted(row[0] for row in rows if row[0]) == [1, 7]
    assert problems(found, spark, None, end.position) == [
        ("a.parquet:2", "column id: 300 is not of type tinyint"),
        ("b.parquet:2", "column id: x is not of type tinyint"),
    ]


def test_avro_files_are_read_by_the_schema_of_a_file(spark, folder, stream, tmp_path):
    import fastavro

    old = {"type": "record", "name": "r", "fields": [{"name": "id", "type": "int"}]}
    more = {"name": "name", "type": ["null", "string"], "default": None}
    new = {**old, "fields": [*old["fields"], more]}
    for name, schema, record in (("a", old, {"id": 1}), ("b", new, {"id": 2, "name": "x"})):
        with (folder.path / f"{name}.avro").open("wb") as out:
            fastavro.writer(out, fastavro.parse_schema(schema), [record])
    (tmp_path / "r.avsc").write_text(json.dumps(new))
    found = stream("avro", (), schema_file=str(tmp_path / "r.avsc"))
    assert found.columns(spark)[:2] == (("id", "int"), ("name", "string"))
    rows, _ = through(found, spark, "id", "name")
    assert sorted(rows) == [(1, None), (2, "x")]


def test_changes_of_debezium_are_read_from_files(spark, folder, stream):
    folder.put("a.json", '{"op":"c","before":null,"after":{"id":1},"ts_ms":5,"source":{}}\n')
    rows, _ = through(stream("debezium"), spark, "id", "_op")
    assert rows == [(1, "c")]


def test_what_a_record_comes_with(spark, folder, stream):
    folder.put("a.json", [1])
    found = stream()
    assert found.columns(spark) == (
        ("id", "int"),
        ("_file", "string"),
        ("_modified", "timestamp"),
    )
    end = found.end(spark, None)
    (row,) = found.read(spark, None, end.position).collect()
    assert (row[RAW], row[AT], row[PROBLEM]) == ('{"id":1}', "a.json:1", None)
    assert row._modified.timestamp() == folder.time
    assert end.oldest == folder.time


def test_everything_wrong_is_told_at_once(spark, stream):
    with pytest.raises(StreamSqlError) as caught:
        stream("xml", start="soon", on_rewrite="maybe", max_files_per_barrier=0, patth="x")
    assert caught.value.code == "CONFIG_INVALID"
    for told in (
        "`format` is 'xml'",
        "`start`",
        "`on_rewrite`",
        "`max_files",
        "do you mean `path`",
    ):
        assert told in caught.value.given
    with pytest.raises(StreamSqlError, match="column names that clash"):
        stream(columns=[("id", "int"), ("_FILE", "int")]).columns(spark)


def test_files_of_another_file_system_are_found_by_spark(spark, folder, stream, monkeypatch):
    monkeypatch.setattr(folder_listing, "local", lambda path: None)
    monkeypatch.setattr(folder_listing, "_plain", lambda path: path)
    found = stream(path=f"file:{folder.path}", ledger=f"file:{folder.path.parent}/lists")
    found = replace(found, fan=2)
    folder.put(STRANGE, [1])
    folder.put("b.json", [2])
    rows, at = through(found, spark, "id")
    assert ids(rows) == [1, 2]
    file = folder.put("c.json", [3])
    folder.put("d.json", [4])
    end = found.end(spark, at)
    assert ids(records(found, spark, at, end.position, "id")) == [3, 4]
    file.unlink()
    with pytest.raises(StreamSqlError, match="a file is gone"):
        found.read(spark, at, end.position)
    assert found.end(spark, end.position) is None
    with pytest.raises(StreamSqlError) as caught:
        stream(path=f"file:{folder.path}/none").end(spark, None)
    assert caught.value.code == "TABLE_MISSING"


def clicks(folder):
    return {
        "connector": "files",
        "format": "json",
        "columns": [["id", "int"]],
        "options": {"path": str(folder.path)},
    }


@pytest.mark.parametrize("step", ["stream.record", "branch.write", "barrier.precommit"])
def test_whoever_dies_leaves_each_file_in_the_table_once(engine, schema, folder, step):
    table = f"lake.{schema}.clicks"
    folder.put("a.json", [1])
    engine.create_streaming_table(
        table, "SELECT id FROM lake.raw.clicks", stream="lake.raw.clicks", source=clicks(folder)
    )
    folder.put("b.json", [2])
    with dying(step, moment="after"):
        engine.advance()
    folder.put("c.json", [3])
    engine.advance()
    rows = engine.sql(f"SELECT id FROM {table}").collect()
    assert sorted(row.id for row in rows) == [1, 2, 3]
    assert engine.advance().tables[table].mode == "noop"


def test_a_bad_line_fails_the_run_or_is_kept_beside(engine, schema, folder):
    folder.put("a.json", '{"id":1}\n{"id":"two"}\n')

    def make(name, **config):
        engine.create_streaming_table(
            f"lake.{schema}.{name}",
            "SELECT id FROM lake.raw.clicks",
            stream="lake.raw.clicks",
            source=clicks(folder),
            **config,
        )

    with pytest.raises(StreamSqlError) as caught:
        make("strict")
    assert caught.value.code == "BAD_RECORD"
    assert "a.json:2: column id: two is not of type int" in caught.value.given
    make("lenient", on_error="quarantine")
    rows = engine.sql(f"SELECT id FROM lake.{schema}.lenient").collect()
    assert [row.id for row in rows] == [1]
    (bad,) = engine.sql(f"SELECT * FROM lake.{schema}.lenient__quarantine").collect()
    assert (bad.raw, bad.at, bad.reason) == (
        '{"id":"two"}',
        "a.json:2",
        "column id: two is not of type int",
    )
