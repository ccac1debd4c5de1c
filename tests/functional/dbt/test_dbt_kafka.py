"""A dbt project that reads a topic, from an empty folder on, each command in a process of its own."""

from __future__ import annotations

import json
import random
import signal
import threading
from collections import Counter

import pytest

from tests.support.dbt_processes import DBT, DBT_THAT_DIES, run

pytestmark = [pytest.mark.spark, pytest.mark.processes]

PARTITIONS = 3

SOURCES = """
    sources:
      - name: shop
        database: lake
        schema: shop
        tables:
          - name: people
            config:
              meta:
                streamsql:
                  connector: kafka
                  format: json
                  connection: broker
                  options: {topic: TOPIC}
            columns:
              - {name: id, data_type: bigint}
              - {name: version, data_type: bigint}
              - {name: city, data_type: string}
"""
CUSTOMERS = """
    {{ config(materialized='streaming_table', key='id', sequence_by='version',
              delete_when='city is null', leave_out=['version']) }}
    select id, city, version from {{ source('shop', 'people') }}
"""
MOVES = """
    {{ config(materialized='streaming_table') }}
    select id, _partition as part, _offset as at from {{ source('shop', 'people') }}
"""
CITIES = """
    {{ config(materialized='materialized_view') }}
    select city, count(*) as customers from {{ ref('customers') }} group by city
"""
NO_GAP_AND_NOTHING_TWICE = """
    select part from {{ ref('moves') }} group by part
    having count(*) <> max(at) + 1 or count(distinct at) <> count(*)
"""
THE_VIEW_IS_ITS_QUERY = """
    (select city, customers from {{ ref('cities') }}
     except all select city, count(*) from {{ ref('customers') }} group by city)
    union all
    (select city, count(*) from {{ ref('customers') }} group by city
     except all select city, customers from {{ ref('cities') }})
"""


@pytest.fixture
def shop(project, kafka):
    """A project over a new topic, `shop.topic`."""
    project.topic = kafka.topic(PARTITIONS)
    profile(project, kafka, connectors=["kafka"])
    project.write("models/sources.yml", SOURCES.replace("TOPIC", project.topic))
    project.write("models/customers.sql", CUSTOMERS)
    return project


def profile(project, kafka, **keys):
    own = {
        "connections": {"broker": {"bootstrap_servers": kafka.address}},
        "spark_properties": {
            "spark.driver.memory": "700m",
        },
    }
    project.profile({"schema": "shop", "threads": 2, **own, **keys})


def rows(project, query):
    program = "from dbt_streamsql.cli import main; main()"
    code, output = run(project, "-c", program, "query", query, "--json")
    assert code == 0, output
    found = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    return [tuple(row.values()) for row in found]


class Producer(threading.Thread):
    """Writes moves of people, the partition by the person, until it is told to stop."""

    def __init__(self, kafka, topic):
        super().__init__()
        self.kafka, self.topic = kafka, topic
        self.ended = threading.Event()
        self.newest, self.sent = {}, 0

    def run(self):
        rng = random.Random(5)
        while not self.ended.wait(0.05):
            person = rng.randrange(40)
            # Every seventh comes late: it must change nothing.
            late = rng.randrange(7) == 0 and person in self.newest
            version = 0 if late else self.sent + 1
            city = rng.choice(["rome", "oslo", "bern", None])
            value = json.dumps({"id": person, "version": version, "city": city})
            self.kafka.send(self.topic, [value], partition=person % PARTITIONS)
            self.sent += 1
            if not late:
                self.newest[person] = city

    def stop(self):
        self.ended.set()
        self.join()
        return {person: city for person, city in self.newest.items() if city is not None}


def test_a_process_that_is_killed_loses_and_doubles_no_record_of_a_busy_topic(shop, kafka):
    shop.write("models/moves.sql", MOVES)
    shop.write("models/cities.sql", CITIES)
    shop.write("tests/no_gap_and_nothing_twice.sql", NO_GAP_AND_NOTHING_TWICE)
    shop.write("tests/the_view_is_its_query.sql", THE_VIEW_IS_ITS_QUERY)
    producer = Producer(kafka, shop.topic)
    producer.start()
    try:
        code, output = run(shop, "-c", DBT, "build")
        assert code == 0, output
        for step in ("stream.record", "branch.write", "barrier.precommit"):
            code, output = run(shop, "-c", DBT_THAT_DIES + DBT, step, "build")
            assert code == -signal.SIGKILL, output
            code, output = run(shop, "-c", DBT, "build")
            assert code == 0, output
    finally:
        people = producer.stop()
    code, output = run(shop, "-c", DBT, "build")
    assert code == 0, output
    found = rows(
        shop,
        "select 'moves', count(*), '' from lake.shop.moves union all "
        "select 'customer', id, city from lake.shop.customers union all "
        "select 'city', customers, city from lake.shop.cities",
    )
    assert sorted(found) == sorted(
        [
            ("moves", producer.sent, ""),
            *(("customer", person, city) for person, city in people.items()),
            *(("city", count, city) for city, count in Counter(people.values()).items()),
        ]
    )


def test_a_bad_record_fails_the_run_or_is_kept_beside_by_its_place(shop, kafka):
    good = [{"id": 1, "version": 1, "city": "rome"}, {"id": 2, "version": 1, "city": "oslo"}]
    first, second = map(json.dumps, good)
    bad = '{"id":"one","version":3}'
    kafka.send(shop.topic, [first, bad, second], partition=1)
    why = f"{shop.topic}:1:1: column id: one is not of type bigint"
    code, output = run(shop, "-c", DBT, "run")
    assert code == 1
    assert "BAD_RECORD" in output
    assert why in output.replace("\n", "")
    shop.write("models/customers.sql", CUSTOMERS.replace("key=", "on_error='quarantine', key="))
    code, output = run(shop, "-c", DBT, "run")
    assert code == 0, output
    query = (
        "select id, city, '' as reason from lake.shop.customers union all "
        "select null, raw, concat(at, ': ', reason) from lake.shop.customers__quarantine"
    )
    assert sorted(rows(shop, query), key=str) == [
        (1, "rome", ""),
        (2, "oslo", ""),
        (None, bad, why),
    ]


def test_a_profile_without_the_connector_is_told_what_to_add(shop, kafka):
    profile(shop, kafka)
    code, output = run(shop, "-c", DBT, "run")
    assert code == 1
    assert "STREAMSQL.CONFIG_INVALID" in output
    assert "Spark has no Kafka connector" in output
    assert "`connectors: [kafka]` in the profile" in output
    assert "Traceback" not in output
