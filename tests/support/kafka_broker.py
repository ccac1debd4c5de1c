"""A Kafka broker on a loopback port: one process, KRaft, from jars of Maven Central."""

from __future__ import annotations

import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from dbt_streamsql.runtime.spark.java import find_java
from tests.support.java_parts import class_path
from tests.support.spark_servers import end, free_port, is_open, wait

SECONDS = 60
JARS = Path(__file__).parent / "kafka_broker.jars"
"""Of the broker and of all that it needs."""

SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    "auto.create.topics.enable": "false",
    # One broker has one copy of everything.
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "log.segment.delete.delay.ms": "100",
    # Records of tests may be as old as they like.
    "log.retention.ms": "-1",
}


class Broker:
    """A running broker, with what tests do to one."""

    def __init__(self, address: str) -> None:
        from confluent_kafka.admin import AdminClient

        self.address = address
        self._admin = AdminClient({"bootstrap.servers": address})

    def topic(self, partitions: int = 1, **config: str) -> str:
        """The name of a new topic."""
        name = f"t{uuid.uuid4().hex[:12]}"
        self.create(name, partitions, **config)
        return name

    def create(self, name: str, partitions: int = 1, **config: str) -> None:
        from confluent_kafka.admin import NewTopic

        options = {key.replace("_", "."): value for key, value in config.items()}
        made = self._admin.create_topics([NewTopic(name, partitions, 1, config=options)])
        made[name].result(SECONDS)

    def drop(self, name: str) -> None:
        self._admin.delete_topics([name])[name].result(SECONDS)
        until = time.monotonic() + SECONDS
        while name in self._admin.list_topics(timeout=SECONDS).topics:
            assert time.monotonic() < until
            time.sleep(0.1)

    def grow(self, name: str, partitions: int) -> None:
        from confluent_kafka.admin import NewPartitions

        made = self._admin.create_partitions([NewPartitions(name, partitions)])
        made[name].result(SECONDS)

    def forget(self, name: str, partition: int, before: int) -> None:
        """What retention does: the records before an offset are gone."""
        from confluent_kafka import TopicPartition

        gone = self._admin.delete_records([TopicPartition(name, partition, before)])
        for found in gone.values():
            found.result(SECONDS)

    def send(
        self,
        topic: str,
        values: Sequence[bytes | str | None],
        *,
        partition: int = 0,
        key: bytes | str | None = None,
        headers: Sequence[tuple[str, bytes]] | None = None,
        timestamp: int = 0,
    ) -> None:
        """Records in this order. `timestamp`: milliseconds since 1970, 0 for now."""
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self.address, "linger.ms": 0})
        for value in values:
            more = {"headers": list(headers)} if headers else {}
            producer.produce(topic, value, key, partition=partition, timestamp=timestamp, **more)
            producer.poll(0)
        assert producer.flush(SECONDS) == 0

    def transaction(self, topic: str, values: Sequence[str], *, commit: bool) -> None:
        """Records of one transaction, in partition 0."""
        from confluent_kafka import Producer

        name = uuid.uuid4().hex
        producer = Producer({"bootstrap.servers": self.address, "transactional.id": name})
        producer.init_transactions(SECONDS)
        producer.begin_transaction()
        for value in values:
            producer.produce(topic, value, partition=0)
        producer.flush(SECONDS)
        if commit:
            producer.commit_transaction(SECONDS)
        else:
            producer.abort_transaction(SECONDS)


@contextmanager
def server(settings: Mapping[str, str] | None = None) -> Iterator[Broker]:
    """A broker for the length of the block."""
    with tempfile.TemporaryDirectory(prefix="streamsql-kafka-") as name:
        folder = Path(name)
        port, controller = free_port(), free_port()
        wanted = {
            **SETTINGS,
            "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "log.dirs": str(folder / "data"),
            **(settings or {}),
        }
        file = folder / "server.properties"
        file.write_text("".join(f"{key}={value}\n" for key, value in wanted.items()))
        home = find_java()
        java = [str(home.binary), "-cp", class_path(JARS)]
        storage = ["kafka.tools.StorageTool", "format", "-c", str(file), "-t"]
        identity = "MkU3OEVBNTcwNTJENDM2Qg"
        subprocess.run(
            [*java, "-XX:TieredStopAtLevel=1", *storage, identity], check=True, capture_output=True
        )
        log = folder / "log"
        with log.open("wb") as out:
            quick = ["-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
            process = subprocess.Popen(
                [java[0], *quick, *java[1:], "kafka.Kafka", str(file)],
                stdout=out,
                stderr=out,
                stdin=subprocess.DEVNULL,
            )
        try:
            wait(process, log, lambda: is_open(port))
            yield Broker(f"127.0.0.1:{port}")
        finally:
            end(process)


@pytest.fixture(scope="session")
def kafka() -> Iterator[Broker]:
    """One broker for the whole run; each test makes its own topics."""
    with server() as broker:
        yield broker
