"""A topic of a real Kafka that says what a view is."""

from __future__ import annotations

import json

import pytest

from dbt_streamsql.runtime.core.failpoints import SINK_STEPS
from tests.support.sinks import shop  # noqa: F401 - a fixture
from tests.support.steps import dying

pytestmark = [pytest.mark.spark, pytest.mark.processes]

STEPS = [step for step in SINK_STEPS if step != "sink.register"]


def into(kafka, topic, **options):
    where = {"bootstrap_servers": kafka.address, "topic": topic}
    return {"connector": "kafka", "options": {**where, **options}}


def messages(kafka, topic, partitions=1):
    """Key, value and headers of all records of a topic, partition by partition."""
    from confluent_kafka import Consumer, TopicPartition

    settings = {"bootstrap.servers": kafka.address, "group.id": "any"}
    consumer = Consumer({**settings, "enable.partition.eof": True})
    found = []
    try:
        for partition in range(partitions):
            consumer.assign([TopicPartition(topic, partition, 0)])
            while (message := consumer.poll(20)) is not None and message.error() is None:
                value = message.value()
                told = json.loads(value) if value is not None else None
                found.append((json.loads(message.key()), told, dict(message.headers() or ())))
    finally:
        consumer.close()
    return found


def compacted(found):
    """What the newest record of each key says."""
    newest = {tuple(key.values()): value for key, value, _ in found}
    return sorted(tuple(value.values()) for value in newest.values() if value is not None)


def test_the_newest_record_of_each_key_is_its_row(engine, shop, kafka):  # noqa: F811
    topic = kafka.topic(3)
    shop.sink(into(kafka, topic), key=["id"])
    for _ in range(5):
        shop.change()
        engine.advance()
        assert compacted(messages(kafka, topic, 3)) == shop.wanted
    shop.put({1: None, 8: ("bern", 8)})
    engine.advance()
    found = messages(kafka, topic, 3)
    assert compacted(found) == shop.wanted
    barriers = {headers["streamsql.barrier"] for *_, headers in found}
    assert str(shop.known.delivered).encode() in barriers


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("step", STEPS)
def test_whoever_dies_may_tell_twice_but_never_wrongly(
    engine,
    shop,  # noqa: F811
    kafka,
    step,
    moment,
):
    topic = kafka.topic()
    shop.sink(into(kafka, topic), key=["id"])
    shop.put({3: ("bern", 3), 1: None})
    with dying(step, moment=moment):
        engine.advance()
    # Back to what it was: told since the last delivery, nothing has changed.
    shop.put({3: None, 1: ("rome", 10)})
    engine.advance()
    assert compacted(messages(kafka, topic)) == shop.wanted


def test_envelopes_of_changes_can_be_read_back_into_a_table_that_equals_the_view(
    engine,
    shop,  # noqa: F811
    kafka,
    schema,
):
    topic = kafka.topic(2)
    shop.sink(into(kafka, topic), key=["id"], mode="debezium")
    back, source = f"lake.{schema}.back", f"lake.{schema}.source"
    columns = [["id", "int"], ["town", "string"], ["amount", "int"]]
    made = False
    for _ in range(6):
        shop.change()
        engine.advance()
        if not made:
            engine.create_streaming_table(
                back,
                f"SELECT id, town, amount, _op, _lsn FROM {source}",
                stream=source,
                source={
                    "connector": "kafka",
                    "format": "debezium",
                    "columns": columns,
                    "options": {"bootstrap_servers": kafka.address, "topic": topic},
                },
                key=["id"],
                sequence_by="_lsn",
                delete_when="_op = 'd'",
                leave_out=["_op", "_lsn"],
            )
            made = True
        else:
            engine.advance()
        rows = engine.sql(f"SELECT id, town, amount FROM {back}").collect()
        assert sorted(map(tuple, rows)) == shop.wanted
    engine.drop(back)
    found = messages(kafka, topic, 2)
    operations = [value["op"] for _, value, _ in found if value is not None]
    assert {"r", "c"} <= set(operations)
    deletes = [at for at, (_, value, _) in enumerate(found) if value and value["op"] == "d"]
    assert all(found[at + 1][:2] == (found[at][0], None) for at in deletes)
    updates = [value for _, value, _ in found if value and value["op"] == "u"]
    assert all(value["before"] and value["before"] != value["after"] for value in updates)


def test_a_topic_that_is_not_there_holds_nothing_back(engine, shop, kafka):  # noqa: F811
    topic = kafka.topic()
    shop.sink(into(kafka, topic), key=["id"])
    kafka.drop(topic)
    shop.put({3: ("bern", 3)})
    report = engine.advance()
    assert report.sinks[shop.name].error.code == "SINK_UNREACHABLE"
    assert report.tables[shop.view].rows_inserted == 1
    kafka.create(topic)
    shop.put({4: ("bern", 4)})
    engine.advance()
    assert compacted(messages(kafka, topic)) == [(3, "BERN", 3), (4, "BERN", 4)]
