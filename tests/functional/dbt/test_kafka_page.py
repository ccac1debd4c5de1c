"""The Kafka tutorial, followed by a newcomer: only the container is another, the broker of the tests."""

from __future__ import annotations

import sys

import pytest

from dbt_streamsql.runtime.spark.jars import cache_folder
from scripts import newcomer
from tests.support import patience

pytestmark = pytest.mark.processes

DOCKER = """#!{python}
import os, sys

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

words = sys.argv[1:]
program = next((word for word in words if word.endswith(".sh")), "")
given = dict(zip(words, words[1:]))
broker = {{"bootstrap.servers": "{address}"}}
if program.endswith("kafka-topics.sh"):
    name, partitions = given["--topic"], int(given["--partitions"])
    admin = AdminClient(broker)
    admin.create_topics([NewTopic(name, partitions, 1)])[name].result(60)
    print("Created topic", name)
elif program.endswith("kafka-console-producer.sh"):
    producer = Producer(broker)
    for number, line in enumerate(sys.stdin.buffer):
        producer.produce(given["--topic"], line.rstrip(), partition=number % 3)
    sys.exit(producer.flush(60))
elif program.endswith("kafka-console-consumer.sh"):
    consumer = Consumer({{**broker, "group.id": "page", "auto.offset.reset": "earliest"}})
    consumer.subscribe([given["--topic"]])
    left = int(given["--max-messages"])
    while left:
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            print((message.value() or b"null").decode())
            left -= 1
    consumer.close()
else:
    assert words[0] in ("run", "rm"), words
    print("kafka")
"""


def test_the_page_can_be_followed_word_for_word(kafka, tmp_path):
    programs = tmp_path / "programs"
    programs.mkdir()
    docker = programs / "docker"
    docker.write_text(DOCKER.format(python=sys.executable, address=kafka.address))
    docker.chmod(0o755)
    done = patience.run(
        [
            sys.executable,
            str(newcomer.ROOT / "scripts" / "newcomer.py"),
            *("--page", *newcomer.WITH_DOCKER, "--folder", str(tmp_path / "home")),
            *("--packages", sys.prefix, "--jars", str(cache_folder() / "jars")),
            *("--programs", str(programs), "--replace", f"localhost:9092={kafka.address}"),
        ]
    )
    try:
        assert done.returncode == 0, done.stdout + done.stderr
    finally:
        for name in ("orders", "revenue"):
            kafka.drop(name)
