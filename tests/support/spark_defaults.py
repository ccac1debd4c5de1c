"""How every Spark that a test starts is set: for many short-lived processes with small queries.

PySpark takes it from PYSPARK_SUBMIT_ARGS, which processes that tests start inherit.
`python tests/spark_defaults.py` keeps the classes that Spark loads when it starts: a Java machine
that finds them there starts in half of the time.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

CLASSES = Path(sys.prefix) / "spark-classes.jsa"
ARGUMENTS = "PYSPARK_SUBMIT_ARGS"
DEFAULT = "spark.driver.defaultJavaOptions"
OF_EXECUTORS = "spark.executor.defaultJavaOptions"
# Thousands of small queries: the JVM's optimizing compiler and its concurrent collector cost more
# than they win. Without that compiler the JVM reserves 48 MB for code, and one that has filled them
# may end in the middle of a test.
QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC"
# Classes from other files than those that were kept are a reason to load all of them, not to say so.
SILENT = "-Xlog:cds=off -Xlog:cds+dynamic=off"
JAVA = f"{QUICK_JAVA} -XX:SharedArchiveFile={CLASSES} {SILENT}"
DEFAULTS = {
    "spark.ui.enabled": "false",
    DEFAULT: JAVA,
    OF_EXECUTORS: JAVA,
    # Nobody looks at a page of Spark's; each query would sort what is kept for it.
    "spark.ui.retainedJobs": "20",
    "spark.ui.retainedStages": "20",
    "spark.ui.retainedTasks": "200",
    "spark.sql.ui.retainedExecutions": "5",
}
FIRST_EPOCHS = """
import tempfile
from pyspark import SparkContext
from dbt_streamsql import Engine
from dbt_streamsql.runtime.spark.session import open_session
from dbt_streamsql.runtime.spark.settings import SessionSettings

with tempfile.TemporaryDirectory() as folder:
    spark = open_session(SessionSettings(warehouse=folder))
    engine = Engine.open(spark=spark)
    spark.sql("CREATE NAMESPACE lake.a")
    spark.sql("CREATE TABLE lake.a.t AS SELECT id, id % 3 AS k FROM range(100)")
    engine.create_materialized_view("lake.a.v", "SELECT k, count(*) AS n FROM lake.a.t GROUP BY k")
    spark.sql("INSERT INTO lake.a.t VALUES (1, 2)")
    engine.advance()
    engine.close()
    spark.stop()
    # Java keeps them when it ends, and it ends when nobody can speak to it any more.
    java = SparkContext._gateway.proc
    java.stdin.close()
    java.wait()
"""


def use(settings: dict[str, str] = DEFAULTS) -> None:
    """Let this process, and those that it starts, start Spark so."""
    given = "".join(f"--conf {shlex.quote(f'{key}={value}')} " for key, value in settings.items())
    os.environ[ARGUMENTS] = f"{given}pyspark-shell"


def keep_classes() -> None:
    """Start Spark once and keep the classes it has loaded."""
    if CLASSES.is_file():
        return
    print("keeping the classes that Spark loads (half a minute, once)", flush=True)
    part = CLASSES.with_suffix(".part")
    use({DEFAULT: f"{QUICK_JAVA} -XX:ArchiveClassesAtExit={part} {SILENT}"})
    subprocess.run([sys.executable, "-c", FIRST_EPOCHS], check=True)
    part.replace(CLASSES)


if __name__ == "__main__":
    keep_classes()
