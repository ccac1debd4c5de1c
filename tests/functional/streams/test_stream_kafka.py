"""Topics of a real broker are read by offsets: each record once, and a gap is never passed over."""

from __future__ import annotations

import datetime as dt
import json
import random

import pytest

from dbt_streamsql.connectors.sources.kafka import kafka_brokers
from dbt_streamsql.connectors.sources.source import AT, PROBLEM, RAW
from dbt_streamsql.errors import StreamSqlError
from tests.support.steps import dying
from tests.support.streams import opened, problems, records, through

pytestmark = [pytest.mark.spark, pytest.mark.processes]
LAST_CENTURY = 915_148_800_000


@pytest.fixture(params=["client", "queries"])
def way(request, monkeypatch):
    """Both ways to ask the brokers: with the JVM in reach, and without."""
    if request.param == "queries":
        monkeypatch.setattr(kafka_brokers, "is_connect", lambda spark: True)
    return request.param


@pytest.fixture
def stream(kafka):
    """What opens topics as a stream."""

    def declared(topic, fmt="json", columns=(("id", "int"),), **options):
        topics = {"topic" if isinstance(topic, str) else "topics": topic}
        own = {"bootstrap_servers": kafka.address, **topics, **options}
        return opened("kafka", columns, fmt=fmt, **own)

    return declared


def sent(kafka, topic, numbers, **options):
    kafka.send(topic, [json.dumps({"id": number}) for number in numbers], **options)


def ids(rows):
    return sorted(row[0] for row in rows)


def test_records_of_all_partitions_are_read_once(spark, kafka, stream, way):
    topic = kafka.topic(3)
    found = stream(topic)
    for partition in range(3):
        sent(kafka, topic, [partition * 10, partition * 10 + 1], partition=partition)
    end = found.end(spark, None)
    assert end.records == 6
    rows, at = through(found, spark, "id")
    assert ids(rows) == [0, 1, 10, 11, 20, 21]
    assert found.end(spark, at) is None
    sent(kafka, topic, [2], partition=0)
    assert found.end(spark, at).records == 1
    rows, at = through(found, spark, "id", after=at)
    assert ids(rows) == [2]


def test_the_beginning_stays_what_it_was_recorded_as(spark, kafka, stream, way):
    topic = kafka.topic()
    sent(kafka, topic, range(6))
    kafka.forget(topic, 0, 2)
    found = stream(topic)
    end = found.end(spark, None)
    assert end.records == 4
    assert ids(records(found, spark, None, end.position, "id")) == [2, 3, 4, 5]
    assert end.position["start"] == {topic: {"0": 2}}


def test_reading_begins_where_start_says(spark, kafka, stream, way):
    topic = kafka.topic(2)
    sent(kafka, topic, [1], timestamp=LAST_CENTURY)
    sent(kafka, topic, [2])
    for start, first in (
        ("earliest", [1, 2]),
        ("latest", []),
        ("2001-01-01", [2]),
        ("2100-01-01", []),
    ):
        found = stream(topic, start=start)
        end = found.end(spark, None)
        assert ids(records(found, spark, None, end.position, "id")) == first, start
        assert found.end(spark, end.position) is None


def test_an_empty_topic_is_a_beginning(spark, kafka, stream, way):
    topic = kafka.topic()
    found = stream(topic, start="latest")
    end = found.end(spark, None)
    assert end.records == 0
    assert records(found, spark, None, end.position) == []
    sent(kafka, topic, [1])
    rows, _ = through(found, spark, "id", after=end.position)
    assert ids(rows) == [1]


def test_new_partitions_are_read_from_their_beginning(spark, kafka, stream, way):
    topic = kafka.topic()
    sent(kafka, topic, [1])
    found = stream(topic, start="latest")
    end = found.end(spark, None)
    kafka.grow(topic, 2)
    sent(kafka, topic, [2], partition=1)
    rows, at = through(found, spark, "id", after=end.position)
    assert ids(rows) == [2]
    assert found.end(spark, at) is None


def test_several_topics_are_one_stream(spark, kafka, stream, way):
    one, two = kafka.topic(), kafka.topic(2)
    sent(kafka, one, [1])
    sent(kafka, two, [2], partition=1)
    found = stream([one, two])
    rows, at = through(found, spark, "id", "_topic", "_partition", "_offset")
    assert sorted(rows) == [(1, one, 0, 0), (2, two, 1, 0)]
    sent(kafka, two, [3])
    assert ids(through(found, spark, "id", after=at)[0]) == [3]


def test_nothing_is_lost_or_doubled_over_random_barriers(spark, kafka, stream):
    rng, topic, at, total = random.Random(3), kafka.topic(3), None, []
    found, number = stream(topic, max_records_per_barrier=7), 0
    for _turn in range(12):
        for partition in range(3):
            count = rng.choice([0, 0, 1, 4, 12])
            sent(kafka, topic, range(number, number + count), partition=partition)
            number += count
        end = found.end(spark, at)
        if end is None or rng.random() < 0.3:
            continue  # nothing new, or the barrier was given up
        assert end.records <= 7
        rows = records(found, spark, at, end.position, "id")
        assert len(rows) == end.records
        total += rows
        at = end.position
    rest, _ = through(found, spark, "id", after=at)
    assert ids(total + rest) == list(range(number))


def test_a_bound_is_shared_and_no_partition_waits_for_ever(spark, kafka, stream):
    topic = kafka.topic(3)
    sent(kafka, topic, range(100), partition=0)
    sent(kafka, topic, [100], partition=1)
    found, at, seen = stream(topic, max_records_per_barrier=10), None, []
    for turn in range(20):
        sent(kafka, topic, range(1000 + turn * 10, 1010 + turn * 10), partition=0)
        end = found.end(spark, at)
        assert end.records == 10
        at = end.position
        seen.append(at["offsets"][topic]["1"])
    assert seen[-1] == 1


def test_records_that_are_gone_are_a_loss(spark, kafka, stream, caplog):
    topic = kafka.topic(2)
    sent(kafka, topic, range(5))
    end = stream(topic, max_records_per_barrier=2).end(spark, None)
    read = end.position["offsets"][topic]["0"]
    kafka.forget(topic, 0, 4)
    with pytest.raises(StreamSqlError) as caught:
        stream(topic).end(spark, end.position)
    assert caught.value.code == "STREAM_LOST"
    assert f"read up to {read - 1}: records up to 3 are gone" in caught.value.given
    assert "on_lost: skip" in caught.value.hint
    skipping = stream(topic, on_lost="skip")
    rows, at = through(skipping, spark, "id", after=end.position)
    assert ids(rows) == [4]
    assert "records up to 3 are gone" in caplog.text
    assert skipping.end(spark, at) is None


def test_without_a_jvm_records_that_are_gone_fail_the_read_or_are_passed_over(
    spark, kafka, stream, monkeypatch
):
    monkeypatch.setattr(kafka_brokers, "is_connect", lambda spark: True)
    topic = kafka.topic()
    sent(kafka, topic, range(5))
    end = stream(topic, max_records_per_barrier=2).end(spark, None)
    kafka.forget(topic, 0, 4)
    with pytest.raises(Exception, match="Some data may have been lost"):
        through(stream(topic), spark, "id", after=end.position)
    rows, _ = through(stream(topic, on_lost="skip"), spark, "id", after=end.position)
    assert ids(rows) == [4]


def test_records_that_go_between_recording_and_reading_fail_the_read(spark, kafka, stream):
    topic = kafka.topic()
    sent(kafka, topic, range(5))
    found = stream(topic)
    end = found.end(spark, None)
    kafka.forget(topic, 0, 3)
    with pytest.raises(Exception, match=r"(?i)lost|out.?of.?range|data loss|fail"):
        found.read(spark, None, end.position).collect()


@pytest.mark.parametrize("more", [0, 9])
def test_a_topic_that_was_made_anew_is_another_one(spark, kafka, stream, more):
    topic = kafka.topic()
    sent(kafka, topic, range(5))
    end = stream(topic).end(spark, None)
    kafka.drop(topic)
    kafka.create(topic)
    sent(kafka, topic, range(100, 101 + more))
    with pytest.raises(StreamSqlError) as caught:
        stream(topic).end(spark, end.position)
    assert caught.value.code == "STREAM_LOST"
    assert "dropped and recreated" in caught.value.given
    rows, _ = through(stream(topic, on_lost="skip"), spark, "id", after=end.position)
    assert ids(rows) == list(range(100, 101 + more))


def test_without_a_jvm_a_topic_with_fewer_records_is_a_loss(spark, kafka, stream, monkeypatch):
    monkeypatch.setattr(kafka_brokers, "is_connect", lambda spark: True)
    topic = kafka.topic()
    sent(kafka, topic, range(5))
    end = stream(topic).end(spark, None)
    kafka.drop(topic)
    kafka.create(topic)
    sent(kafka, topic, [7])
    with pytest.raises(StreamSqlError) as caught:
        stream(topic).end(spark, end.position)
    assert caught.value.code == "STREAM_LOST"
    rows, _ = through(stream(topic, on_lost="skip"), spark, "id", after=end.position)
    assert ids(rows) == [7]


def test_what_a_transaction_took_back_is_not_read(spark, kafka, stream, way):
    topic = kafka.topic()
    found = stream(topic)
    kafka.transaction(topic, ['{"id":1}'], commit=False)
    kafka.transaction(topic, ['{"id":2}'], commit=True)
    end = found.end(spark, None)
    assert ids(records(found, spark, None, end.position, "id")) == [2]
    kafka.transaction(topic, ['{"id":3}'], commit=False)
    later = found.end(spark, end.position)
    assert records(found, spark, end.position, later.position) == []
    sent(kafka, topic, [4])
    rows, _ = through(found, spark, "id", after=later.position)
    assert ids(rows) == [4]


def test_what_a_record_comes_with(spark, kafka, stream):
    topic = kafka.topic()
    headers = [("a", b"1"), ("a", b"\xff")]
    kafka.send(topic, ['{"id":1}'], key="k", headers=headers, timestamp=LAST_CENTURY)
    kafka.send(topic, [None], key="k")
    found = stream(topic)
    assert [name for name, _ in found.columns(spark)] == [
        *("id", "_key", "_topic", "_partition", "_offset", "_timestamp", "_headers"),
        "_tombstone",
    ]
    end = found.end(spark, None)
    first, second = sorted(
        found.read(spark, None, end.position).collect(), key=lambda row: row._offset
    )
    assert (first.id, first._key, first._partition, first._tombstone) == (1, "k", 0, False)
    assert [(h.key, bytes(h.value)) for h in first._headers] == headers
    assert first._timestamp.astimezone(dt.timezone.utc).year == 1999
    assert (first[RAW], first[AT], first[PROBLEM]) == ('{"id":1}', f"{topic}:0:0", None)
    assert (second.id, second._key, second._tombstone) == (None, "k", True)
    assert (second[RAW], second[PROBLEM]) == (None, None)
    binary = stream(topic, key_type="binary")
    assert dict(binary.columns(spark))["_key"] == "binary"
    assert bytes(binary.read(spark, None, end.position).first()._key) == b"k"


def test_how_old_the_oldest_new_record_is(spark, kafka, stream):
    topic = kafka.topic(2)
    found = stream(topic)
    first = found.end(spark, None)
    sent(kafka, topic, [2], partition=1, timestamp=LAST_CENTURY + 5000)
    sent(kafka, topic, [1], partition=0, timestamp=LAST_CENTURY)
    assert found.end(spark, first.position).oldest == LAST_CENTURY / 1000


def test_bad_records_are_told_by_partition_and_offset(spark, kafka, stream):
    topic = kafka.topic(2)
    kafka.send(topic, ['{"id":1}', '{"id":"one"}', "{bad"], partition=1)
    found = stream(topic)
    end = found.end(spark, None)
    assert problems(found, spark, None, end.position) == [
        (f"{topic}:1:1", "column id: one is not of type int"),
        (f"{topic}:1:2", "it is not a JSON object"),
    ]


def test_a_key_that_is_no_text_is_told(spark, kafka, stream):
    topic = kafka.topic()
    kafka.send(topic, ['{"id":1}'], key=b"\xff")
    found = stream(topic)
    end = found.end(spark, None)
    ((at, told),) = problems(found, spark, None, end.position)
    assert (at, "key is not UTF-8" in told) == (f"{topic}:0:0", True)
    rows = records(stream(topic, key_type="binary"), spark, None, end.position, "_key")
    assert [bytes(key) for (key,) in rows] == [b"\xff"]


def test_raw_values_are_text_or_bytes(spark, kafka, stream):
    topic = kafka.topic()
    kafka.send(topic, [b"a\xff"])
    text = stream(topic, "raw", ())
    end = text.end(spark, None)
    assert problems(text, spark, None, end.position) == [(f"{topic}:0:0", "it is not UTF-8")]
    data = stream(topic, "raw", [("value", "binary")])
    assert [bytes(v) for (v,) in records(data, spark, None, end.position, "value")] == [b"a\xff"]


def test_debezium_changes_make_a_table_by_key(engine, schema, kafka):
    topic, table = kafka.topic(), f"lake.{schema}.users"
    made = ("op", "before", "after")

    def send(*changes):
        values = [json.dumps(dict(zip(made, change, strict=True))) for change in changes]
        kafka.send(topic, [*values, None])  # Debezium sends a tombstone after a delete

    def row(number, name):
        return {"id": number, "name": name}

    send(("r", None, row(1, "a")), ("c", None, row(2, "b")))
    engine.create_streaming_table(
        table,
        "SELECT id, name, _op, _offset FROM lake.cdc.users",
        stream="lake.cdc.users",
        source={
            "connector": "kafka",
            "format": "debezium",
            "columns": [["id", "int"], ["name", "string"]],
            "options": {"bootstrap_servers": kafka.address, "topic": topic},
        },
        key=["id"],
        sequence_by="_offset",
        delete_when="_op = 'd'",
        leave_out=["_op", "_offset"],
    )
    send(("u", row(1, "a"), row(1, "z")), ("d", row(2, "b"), None), ("c", None, row(3, "c")))
    engine.advance()
    rows = engine.sql(f"SELECT id, name FROM {table}").collect()
    assert sorted(map(tuple, rows)) == [(1, "z"), (3, "c")]


@pytest.mark.parametrize(
    "step", ["stream.record", "branch.write", "barrier.precommit", "barrier.commit"]
)
def test_whoever_dies_leaves_each_record_in_the_table_once(engine, schema, kafka, step):
    topic, table = kafka.topic(2), f"lake.{schema}.clicks"
    sent(kafka, topic, [1])
    engine.create_streaming_table(
        table,
        "SELECT id FROM lake.raw.clicks",
        stream="lake.raw.clicks",
        source={
            "connector": "kafka",
            "format": "json",
            "columns": [["id", "int"]],
            "options": {"bootstrap_servers": kafka.address, "topic": topic},
        },
    )
    sent(kafka, topic, [2], partition=1)
    with dying(step, moment="after"):
        engine.advance()
    sent(kafka, topic, [3])
    engine.advance()
    rows = engine.sql(f"SELECT id FROM {table}").collect()
    assert sorted(row.id for row in rows) == [1, 2, 3]
    again = engine.advance().tables[table]
    assert (again.mode, again.jobs) == ("noop", 0)


def test_a_broker_that_does_not_answer_and_a_topic_that_is_not_there_are_told(
    spark, kafka, stream, way
):
    soon = {f"kafka.{each}.timeout.ms": "1500" for each in ("request", "default.api")}
    with pytest.raises(StreamSqlError) as caught:
        stream("none_such", **soon).end(spark, None)
    assert caught.value.code == "TABLE_MISSING"
    options = {
        "bootstrap_servers": "127.0.0.1:1",
        **soon,
        "kafka.request.timeout.ms": "1000",
        "kafka.sasl.jaas.config": "very-secret",
    }
    with pytest.raises(StreamSqlError) as caught:
        stream("t", **options).end(spark, None)
    assert caught.value.code == "STREAM_UNREACHABLE"
    assert "127.0.0.1:1" in str(caught.value)
    assert "very-secret" not in str(caught.value)


def test_everything_wrong_is_told_at_once(stream):
    with pytest.raises(StreamSqlError) as caught:
        stream(
            "a b",
            "parquet",
            start="soon",
            on_lost="ignore",
            **{"kafka.bootstrap.servers": "x", "max_record_per_barrier": 1},
        )
    assert caught.value.code == "CONFIG_INVALID"
    for told in (
        "`format` is 'parquet'",
        "`topic` is 'a b'",
        "`start`",
        "`on_lost`",
        "`kafka.bootstrap.servers`",
        "do you mean `max_records_per_barrier`",
    ):
        assert told in caught.value.given
    with pytest.raises(StreamSqlError, match="one of `topic` and `topics`"):
        stream("a", topics=["b"])
