"""How often an epoch reads its inputs: TPC-H's queries, when orders come and go."""

from __future__ import annotations

from collections import Counter

import pytest

from benchmarks.tpch import data, queries
from benchmarks.tpch.changes import Refresh
from benchmarks.tpch.keys import declared_keys

SCALE = 0.01
REFRESH = Refresh(epochs=len(queries.NAMES), seed=3)

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(
        data.generator() is None, reason="tpchgen-cli is not installed (pip install tpchgen-cli)"
    ),
]


@pytest.fixture
def tables(engine, schema, tmp_path):
    data.register(engine.spark, data.generate(tmp_path, SCALE))
    data.load(engine.spark, f"lake.{schema}", [REFRESH])
    yield f"lake.{schema}"
    data.forget(engine.spark)


def test_an_epoch_reads_an_input_once_for_its_change_and_once_to_look_rows_up(
    engine, schema, tables, tune
):
    tune(engine, big_rows=0, compared_rows=-1)
    keys, place = declared_keys(tables), queries.Place(tables, SCALE)
    seen = {}
    for number, name in enumerate(queries.NAMES):
        view = f"lake.{schema}.v_{name}"
        engine.create_materialized_view(
            view, queries.text(name, place), state="all", keys=keys, refresh_mode="incremental"
        )
        for statement in REFRESH.statements(tables, number):
            engine.spark.sql(statement)
        seen[name] = Counter()
        for report in engine.advance().tables.values():
            seen[name].update(report.reads)
        assert engine.verify(view) == []
        engine.drop(view)
    assert {
        name: reads for name, reads in seen.items() if max(reads.values(), default=0) > 2
    } == {}
    assert seen["q06"] == {f"{tables}.lineitem": 1}
    assert seen["q14"] == {f"{tables}.lineitem": 1, f"{tables}.part": 1}


def test_scans_of_spark_count_too(engine, schema, tables, tune):
    tune(engine, big_rows=0, compared_rows=-1, decoded_bytes=0)
    view, sql = f"lake.{schema}.v", queries.text("q06", queries.Place(tables, SCALE))
    engine.create_materialized_view(view, sql, refresh_mode="incremental")
    for statement in REFRESH.statements(tables, 0):
        engine.spark.sql(statement)
    assert engine.advance().tables[view].reads[f"{tables}.lineitem"] > 1
