"""Nexmark's queries as materialized views: events that arrive, then corrections of old ones.

`STREAMSQL_SEED` chooses other events, `STREAMSQL_NEXMARK=q04,q05` some of the queries. Every view
is compared with DuckDB.
"""

from __future__ import annotations

import os
from collections import Counter

import pytest

from benchmarks.nexmark import data, queries
from tests.suites.oracle import Oracle
from tests.suites.play import Query, lines, play

SEED = int(os.environ.get("STREAMSQL_SEED", "1"))
CHOSEN = os.environ.get("STREAMSQL_NEXMARK", ",".join(queries.NAMES)).split(",")
pytestmark = pytest.mark.suites
STREAM = data.Stream(first=8_000, appending=3, retracting=3, size=500, seed=SEED)


@pytest.fixture(scope="module")
def files(engine, tmp_path_factory):
    folder = tmp_path_factory.mktemp("nexmark")
    STREAM.write(folder)
    data.register(engine.spark, folder)
    yield folder
    data.forget(engine.spark)


@pytest.fixture(scope="module")
def played(engine, suite_schema, files, tell):
    data.load(engine.spark, suite_schema)
    oracle = Oracle(suite_schema)
    oracle.run(queries.MACRO)
    for table in data.TABLES:
        oracle.run(f"CREATE VIEW generated_{table} AS FROM '{files / table}.parquet'")
        oracle.run(data.create(suite_schema, table))
        oracle.run(data.arrive(suite_schema, table, 0))
    chosen = [
        Query(name, queries.text(name, suite_schema), queries.oracle(name, suite_schema))
        for name in CHOSEN
    ]
    epochs = range(STREAM.appending + STREAM.retracting)
    statements = [STREAM.statements(suite_schema, number) for number in epochs]
    clock = Counter()
    done = play(engine, suite_schema, chosen, statements, oracle, clock)
    title = f"Nexmark, seed {SEED}: {STREAM.appending} epochs append, the others also correct"
    tell(lines(title, done.values(), clock))
    oracle.close()
    return done


@pytest.mark.parametrize("name", CHOSEN)
def test_a_nexmark_view_equals_its_query_on_duckdb_after_every_epoch(played, name):
    assert played[name].wrong == []


@pytest.mark.parametrize("name", CHOSEN)
def test_a_nexmark_view_has_rows_in_some_epoch(played, name):
    assert max(played[name].rows) > 0


def test_a_window_may_be_the_first_group(engine, files, suite_schema):
    engine.compile(
        f"SELECT max(price) AS price FROM {suite_schema}.bid GROUP BY window(ts, '10 seconds')"
    )
