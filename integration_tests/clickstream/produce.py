"""Nexmark's events, 1 person : 3 auctions : 46 bids, sent to Kafka at a steady rate.

    python produce.py --rate 2000 --minutes 10      (the broker is $CLICKSTREAM_KAFKA)

Half of the bids go to a hot auction, the others to the newest hundred; prices are spread evenly
over their magnitudes. What an event holds depends on the seed and on how events are taken, its
time is when it is sent.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

TOPICS = ("persons", "auctions", "bids")
PARTITIONS = 2
STEP_MS = 100
"""Between two times at which events are sent."""
_ROUND, _PERSONS, _AUCTIONS = 50, 1, 3
_FIRST_ID, _NEWEST, _HOT_EVERY = 1000, 100, 20
_STATES = pa.array(["AZ", "CA", "ID", "OR", "WA", "WY"])
_CITIES = pa.array(["Phoenix", "Los Angeles", "Boise", "Portland", "Seattle", "Cheyenne", "Bend"])
_NAMES = pa.array(["Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah"])
_CHANNELS = pa.array(
    ["Google", "Facebook", "Baidu", "Apple"] * 12 + [f"channel-{n}" for n in range(48)]
)
_FOLDERS = pa.array([f"f{n:03}/g{n * 7 % 1000:03}" for n in range(1000)])


@dataclass
class Events:
    """Makes events one after the other; `made` is how many there have been."""

    seed: int = 1
    made: int = 0

    def take(self, count: int, first_ms: int, last_ms: int) -> dict[str, list[str]]:
        """The next events as JSON, by topic, with times from `first_ms` to before `last_ms`."""
        random = np.random.default_rng([self.seed, self.made])
        number = np.arange(self.made, self.made + count)
        self.made += count
        ts = first_ms + (np.arange(count) * (last_ms - first_ms)) // max(1, count)
        within = number % _ROUND
        persons = number // _ROUND + (within >= _PERSONS)
        auctions = number // _ROUND * _AUCTIONS + np.clip(within - _PERSONS, 0, _AUCTIONS)
        person, bid = within < _PERSONS, within >= _PERSONS + _AUCTIONS
        auction = ~(person | bid)
        return {
            "persons": _persons(random, persons[person], ts[person]),
            "auctions": _auctions(random, auctions[auction], persons[auction], ts[auction]),
            "bids": _bids(random, auctions[bid], persons[bid], ts[bid]),
        }


def _persons(random: np.random.Generator, number: np.ndarray, ts: np.ndarray) -> list[str]:
    count = number.size
    return _json(
        {
            "id": number + _FIRST_ID,
            "name": _one_of(random, _NAMES, count),
            "city": _one_of(random, _CITIES, count),
            "state": _one_of(random, _STATES, count),
            "ts": ts,
        }
    )


def _auctions(
    random: np.random.Generator, number: np.ndarray, persons: np.ndarray, ts: np.ndarray
) -> list[str]:
    count = number.size
    return _json(
        {
            "id": number + _FIRST_ID,
            "item": _one_of(random, _FOLDERS, count),
            "seller": _newest(random, persons, 0.75),
            "category": random.integers(10, 15, count),
            "initial_bid": _prices(random, count),
            "ts": ts,
            "expires": ts + random.integers(1_000, 20_000, count),
        }
    )


def _bids(
    random: np.random.Generator, auctions: np.ndarray, persons: np.ndarray, ts: np.ndarray
) -> list[str]:
    count = auctions.size
    folder = _one_of(random, _FOLDERS, count)
    return _json(
        {
            "auction": _newest(random, auctions, 0.5),
            "bidder": _newest(random, persons, 0.75),
            "price": _prices(random, count),
            "channel": _one_of(random, _CHANNELS, count),
            "url": pc.binary_join_element_wise(
                "https://www.nexmark.com/", folder, "/item.htm?query=1", ""
            ),
            "ts": ts,
        }
    )


def _newest(random: np.random.Generator, made: np.ndarray, hot: float) -> np.ndarray:
    """An id of the `made` ones so far: the hot one, or one of the newest."""
    last = np.maximum(made - 1, 0)
    cold = last - random.integers(0, np.minimum(last + 1, _NEWEST))
    chosen = np.where(random.random(made.size) < hot, last // _HOT_EVERY * _HOT_EVERY, cold)
    return chosen + _FIRST_ID


def _prices(random: np.random.Generator, count: int) -> np.ndarray:
    return (10 ** (random.random(count) * 6) * 100).astype(np.int64)


def _one_of(random: np.random.Generator, values: pa.Array, count: int) -> pa.Array:
    return values.take(pa.array(random.integers(0, len(values), count)))


def _json(columns: dict[str, np.ndarray | pa.Array]) -> list[str]:
    """One object a row. The texts need no escapes."""
    parts: list[str | pa.Array] = []
    for name, values in columns.items():
        opening = ("," if parts else "{") + f'"{name}":'
        if isinstance(values, np.ndarray):
            parts += [opening, pc.cast(pa.array(values), pa.string())]
        else:
            parts += [f'{opening}"', values, '"']
    return pc.binary_join_element_wise(*parts, "}", "").to_pylist()


def make_topics(address: str) -> None:
    """The topics, where they are not there yet."""
    admin = AdminClient({"bootstrap.servers": address})
    known = admin.list_topics(timeout=30).topics
    missing = [NewTopic(topic, PARTITIONS, 1) for topic in TOPICS if topic not in known]
    for made in admin.create_topics(missing).values() if missing else ():
        made.result(30)


class Sender:
    """Sends the events of one source."""

    def __init__(self, address: str, events: Events) -> None:
        self.events = events
        # What is not acknowledged would be sent again, perhaps twice.
        settings = {
            "enable.idempotence": True,
            "linger.ms": 20,
            "queue.buffering.max.messages": 1_000_000,
        }
        self._producer = Producer({"bootstrap.servers": address, **settings})
        self._turn = 0

    def send(self, count: int, first_ms: int, last_ms: int) -> None:
        """The next `count` events, with times from `first_ms` on."""
        self._turn += 1
        for topic, values in self.events.take(count, first_ms, last_ms).items():
            records = [{"value": value} for value in values]
            while records:
                taken = self._producer.produce_batch(
                    topic, records, partition=self._turn % PARTITIONS
                )
                records = records[taken:]
                self._producer.poll(0.1 if records else 0)

    def flush(self) -> None:
        if left := self._producer.flush(60):
            raise TimeoutError(f"Kafka did not take {left} records")

    def run(self, rate: int, seconds: float) -> float:
        """`rate` events a second for so long; the seconds by which it is behind in the end."""
        began, sent, due = time.time(), 0, 0.0
        for step in range(1, round(seconds * 1000 / STEP_MS) + 1):
            due = step * STEP_MS / 1000
            time.sleep(max(0.0, began + due - time.time()))
            wanted = int(rate * due) - sent
            last_ms = int((began + due) * 1000)
            self.send(wanted, last_ms - STEP_MS, last_ms)
            sent += wanted
        self.flush()
        return max(0.0, time.time() - began - due)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--kafka", default=os.environ.get("CLICKSTREAM_KAFKA"))
    parser.add_argument("--rate", type=int, default=1000, help="events a second: %(default)s")
    parser.add_argument("--minutes", type=float, default=10, help="%(default)s")
    parser.add_argument("--seed", type=int, default=1, help="%(default)s")
    parser.add_argument(
        "--first", type=int, default=0, help="number of the first event: %(default)s"
    )
    given = parser.parse_args()
    if not given.kafka:
        parser.error("--kafka, or $CLICKSTREAM_KAFKA: host and port of the broker")
    make_topics(given.kafka)
    sender = Sender(given.kafka, Events(given.seed, given.first))
    behind = sender.run(given.rate, given.minutes * 60)
    print(f"{sender.events.made - given.first:,} events, {behind:.1f} s late at the end")
    return 0


if __name__ == "__main__":
    sys.exit(main())
