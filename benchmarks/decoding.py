"""What it takes to read the records of a stream: a record alone, and many of them.

python -m benchmarks.decoding --rows 300000     (docs/benchmarks.md)

A record has ten columns of ten types. `described` is what Python needs to say how a record is
read, `one` the whole of it for one record, `rows/s` the pace of many. The first round of a format
is not counted: Spark has its own classes to load.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from pyspark.sql import DataFrame, SparkSession

from benchmarks import data
from dbt_streamsql.connectors.options import Options
from dbt_streamsql.connectors.sources.formats.decoding import VALUE
from dbt_streamsql.connectors.sources.formats.registry import format_of
from dbt_streamsql.connectors.sources.source import AT
from dbt_streamsql.errors import Place

ROW = {
    "id": (1, "bigint"),
    "name": ("x", "string"),
    "city": ("y", "string"),
    "often": (3, "int"),
    "share": (1.5, "double"),
    "at": ("2026-01-02 03:04:05", "timestamp"),
    "day": ("2026-01-02", "date"),
    "price": ("12.50", "decimal(12,2)"),
    "is_open": (True, "boolean"),
    "note": ("z", "string"),
}
VALUES = {name: value for name, (value, _) in ROW.items()}
CHANGE = {"op": "u", "before": VALUES, "after": VALUES, "ts_ms": 1, "source": {}}
RECORDS = {
    "text": ("x", {}),
    "csv": (",".join(map(str, VALUES.values())), {}),
    "json": (json.dumps(VALUES), {}),
    "debezium": (json.dumps(CHANGE), {"decimal_handling": "string"}),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=300_000)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    print(f"{'format':<10}{'described s':>12}{'one s':>8}{'rows/s':>10}")
    with tempfile.TemporaryDirectory(prefix="streamsql-decoding-") as folder:
        world = data.open_world(Path(folder), with_delta=False)
        try:
            for name in RECORDS:
                ones = [_read(world.spark, name, 1) for _ in range(given.rounds + 1)][1:]
                many = sum(_read(world.spark, name, given.rows))
                described = median(each[0] for each in ones)
                one = median(sum(each) for each in ones)
                print(f"{name:<10}{described:>12.3f}{one:>8.2f}{given.rows / many:>10.0f}")
        finally:
            world.close()
    return 0


def _read(spark: SparkSession, name: str, rows: int) -> tuple[float, float]:
    """Seconds to describe the records, and to plan and run it."""
    record, own = RECORDS[name]
    columns = [] if name == "text" else [(column, kind) for column, (_, kind) in ROW.items()]
    spec = {"connector": "kafka", "format": name, "columns": columns, "options": own}
    frame = spark.range(rows).selectExpr(
        f"id AS `{AT}`", f"CAST('{record}' AS BINARY) AS `{VALUE}`"
    )
    began = time.perf_counter()
    found = _decoded(spark, frame, spec, name)
    described = time.perf_counter()
    found.write.format("noop").mode("overwrite").save()
    return described - began, time.perf_counter() - described


def _decoded(
    spark: SparkSession, frame: DataFrame, spec: dict[str, object], name: str
) -> DataFrame:
    options = Options(spec, Place(name))
    form = format_of(options, (name,))
    options.check()
    return form.decode(spark, frame, ())


if __name__ == "__main__":
    sys.exit(main())
