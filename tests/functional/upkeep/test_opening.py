"""Engines that are opened in one process, one after the other."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.spark_child import paths

pytestmark = pytest.mark.processes

ONE_AFTER_THE_OTHER = """
import sys
from dbt_streamsql import Engine
for number, folder in enumerate(sys.argv[1:]):
    engine = Engine.open(folder)
    engine.spark.sql("CREATE NAMESPACE lake.s")
    engine.spark.sql(f"CREATE TABLE lake.s.t{number} AS SELECT {number} AS n")
    engine.create_materialized_view("lake.s.v", f"SELECT n + 1 AS n FROM lake.s.t{number}")
    engine.close()
engine = Engine.open(sys.argv[1])
tables = [row.tableName for row in engine.spark.sql("SHOW TABLES IN lake.s").collect()]
print(sorted(tables), engine.sql("SELECT n FROM lake.s.v").first().n)
engine.close()
"""


def test_an_engine_works_on_its_own_warehouse_after_another_one_was_closed(tmp_path):
    folders = [str(tmp_path / name) for name in ("one", "two")]
    done = subprocess.run(
        [sys.executable, "-c", ONE_AFTER_THE_OTHER, *folders],
        env=paths(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.strip().endswith("['t0', 'v'] 1")
