"""`native: true`: Spark runs native code, and what that cannot do runs again without it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.spark_child import paths

pytestmark = pytest.mark.processes

WITH_LITTLE_MEMORY = """
import logging, sys
from dbt_streamsql import Engine
from dbt_streamsql.runtime.spark.session import open_session
from dbt_streamsql.runtime.spark.settings import SessionSettings
logging.basicConfig(format="LOG %(message)s", stream=sys.stdout)
little = {"spark.memory.offHeap.size": "24m", "spark.sql.autoBroadcastJoinThreshold": "-1"}
spark = open_session(
    SessionSettings(warehouse=sys.argv[1], native=True, spark_properties=little)
)
engine = Engine.open(spark=spark)
spark.sql("CREATE NAMESPACE lake.s")
for name in ("a", "b"):
    text = "repeat(md5(CAST(id AS STRING)), 3)"
    spark.sql(f"CREATE TABLE lake.s.{name} AS SELECT id, {text} AS t FROM range(600000)")
query = "SELECT a.id, a.t, b.t AS u FROM lake.s.a a JOIN lake.s.b b ON a.id = b.id"
made = engine.create_materialized_view("lake.s.v", query, refresh_mode=sys.argv[2])
print("MADE", made.rows_inserted)
spark.sql("INSERT INTO lake.s.a SELECT id, 'twice' FROM range(400000)")
told = engine.advance().tables["lake.s.v"]
print("ADVANCED", told.mode, engine.sql("SELECT count(*) FROM lake.s.v").first()[0])
print("DIFFERING", len(engine.verify("lake.s.v")))
engine.close()
"""


@pytest.mark.parametrize("mode", ["auto", "incremental_strict"])
def test_a_refresh_that_native_memory_cannot_hold_runs_again_without_it(tmp_path, mode):
    done = subprocess.run(
        [sys.executable, "-c", WITH_LITTLE_MEMORY, str(tmp_path / "warehouse"), mode],
        env=paths(),
        capture_output=True,
        text=True,
        check=False,
    )
    told = done.stdout
    assert done.returncode == 0, done.stderr[-3000:]
    assert "LOG native code failed, so lake.s.v runs again without it" in told
    assert "MADE 600000" in told
    assert "1000000" in told.partition("ADVANCED")[2]
    assert told.strip().endswith("DIFFERING 0")
    assert "Comet" not in done.stderr, "a warning is enough"
