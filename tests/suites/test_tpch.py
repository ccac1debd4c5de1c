"""TPC-H as materialized views: the refresh functions and updates, compared with DuckDB.

`STREAMSQL_TPCH_SCALE` and `STREAMSQL_SEED` choose other data and other changes,
`STREAMSQL_TPCH=q02,q18` other queries.
"""

from __future__ import annotations

import os
from collections import Counter

import pytest

from benchmarks.tpch import data, queries
from benchmarks.tpch.changes import Refresh
from tests.suites.oracle import AVERAGE, Oracle
from tests.suites.play import Query, lines, play

SCALE = float(os.environ.get("STREAMSQL_TPCH_SCALE", "0.01"))
SEED = int(os.environ.get("STREAMSQL_SEED", "1"))
SPEC = queries.names(with_unlimited=False)
NAMES = os.environ.get("STREAMSQL_TPCH", ",".join(SPEC)).split(",")
REFRESH = Refresh(epochs=10, orders=3, dimensions=20, seed=SEED)

pytestmark = [
    pytest.mark.suites,
    pytest.mark.skipif(
        data.generator() is None, reason="tpchgen-cli is not installed (pip install tpchgen-cli)"
    ),
]


@pytest.fixture(scope="module")
def files(engine, tmp_path_factory):
    folder = data.generate(tmp_path_factory.mktemp("tpch"), SCALE)
    data.register(engine.spark, folder)
    yield folder
    data.forget(engine.spark)


@pytest.fixture(scope="module")
def played(engine, suite_schema, files, tell):
    data.load(engine.spark, suite_schema, [REFRESH])
    oracle = Oracle(suite_schema)
    for table in data.TABLES:
        oracle.run(f"CREATE VIEW generated_{table} AS FROM '{files / table}.parquet'")
        oracle.run(f"CREATE TABLE {suite_schema}.{table} AS {data.initial(table, REFRESH)}")
    place = queries.Place(suite_schema, SCALE)
    chosen = [
        Query(name, queries.text(name, place), queries.text(name, place, AVERAGE))
        for name in NAMES
    ]
    epochs = [REFRESH.statements(suite_schema, number) for number in range(REFRESH.epochs)]
    clock = Counter()
    done = play(engine, suite_schema, chosen, epochs, oracle, clock)
    tell(lines(f"TPC-H, scale {SCALE:g}, seed {SEED}", done.values(), clock))
    oracle.close()
    return done


@pytest.mark.parametrize("name", NAMES)
def test_a_tpch_view_equals_its_query_on_duckdb_after_every_epoch(played, name):
    assert played[name].wrong == []


@pytest.mark.parametrize("name", NAMES)
def test_a_tpch_view_has_rows_in_some_epoch(played, name):
    assert max(played[name].rows) > 0
