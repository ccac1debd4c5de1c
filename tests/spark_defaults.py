"""How every Spark that a test starts is set: for many short-lived processes with small queries.

`spark-defaults.conf` in a folder of the virtual environment, which processes that tests start find
by SPARK_CONF_DIR. `python tests/spark_defaults.py` also keeps the classes that Spark loads when it
starts: a Java machine that finds them there starts in two thirds of the time.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

FOLDER = Path(sys.prefix) / "spark-conf"
CLASSES = FOLDER / "classes.jsa"
DEFAULT = "spark.driver.defaultJavaOptions"
# Thousands of small queries: the JVM's optimizing compiler and its concurrent collector cost more
# than they win. Without that compiler the JVM reserves 48 MB for code, and one that has filled them
# may end in the middle of a test.
QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC"
# Classes from other files than those that were kept are a reason to load all of them, not to say so.
KEPT = f"-XX:SharedArchiveFile={CLASSES} -Xlog:cds=off -Xlog:cds+dynamic=off"
DEFAULTS = {
    "spark.ui.enabled": "false",
    DEFAULT: f"{QUICK_JAVA} {KEPT}",
    # Nobody looks at a page of Spark's; each query would sort what is kept for it.
    "spark.ui.retainedJobs": "20",
    "spark.ui.retainedStages": "20",
    "spark.ui.retainedTasks": "200",
    "spark.sql.ui.retainedExecutions": "5",
}
FIRST_EPOCHS = """
import sys, tempfile
from pyspark import SparkContext
from dbt_streamsql import Engine
from dbt_streamsql.runtime.session import SessionSettings, open_session

with tempfile.TemporaryDirectory() as folder:
    spark = open_session(SessionSettings(warehouse=folder, spark_properties={sys.argv[1]: sys.argv[2]}))
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


def use() -> None:
    """Let this process, and those that it starts, start Spark so."""
    FOLDER.mkdir(exist_ok=True)
    text = "".join(f"{key} {value}\n" for key, value in DEFAULTS.items())
    file = FOLDER / "spark-defaults.conf"
    if not file.is_file() or file.read_text() != text:
        # Several processes of one test run may do so at the same time.
        part = FOLDER / f"{os.getpid()}.part"
        part.write_text(text)
        part.replace(file)
    os.environ["SPARK_CONF_DIR"] = str(FOLDER)


def keep_classes() -> None:
    """Start Spark once and keep the classes it has loaded."""
    use()
    if CLASSES.is_file():
        return
    print("keeping the classes that Spark loads (half a minute, once)", flush=True)
    part = CLASSES.with_suffix(".part")
    keep = f"{QUICK_JAVA} -XX:ArchiveClassesAtExit={part} -Xlog:cds=off -Xlog:cds+dynamic=off"
    file = FOLDER / "spark-defaults.conf"
    file.unlink()
    subprocess.run([sys.executable, "-c", FIRST_EPOCHS, DEFAULT, keep], check=True)
    part.replace(CLASSES)
    use()


if __name__ == "__main__":
    keep_classes()
