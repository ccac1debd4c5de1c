"""Delta tables as streams, in a process whose Spark has Delta: prints what went wrong as JSON.

`python -m tests.functional.streams.delta_stream FOLDER`
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from dbt_streamsql.errors import StreamSqlError
from tests.staged import targets
from tests.support.streams import opened, records, through

ROW = ("_op", "k", "v")


def check(spark: Any, name: str, feed: str) -> list[str]:
    """What a fed or a plain table does wrong."""
    wrong, table = [], f"spark_catalog.shop.{name}"

    def expect(what: str, found: Any, expected: Any) -> None:
        if found != expected:
            wrong.append(f"{name}: {what}: {found} is not {expected}")

    def refusal(source: Any, after: Any) -> str:
        try:
            source.end(spark, after)
        except StreamSqlError as error:
            return error.code
        return "none"

    spark.sql(
        f"CREATE TABLE {table} USING delta TBLPROPERTIES ('delta.enableChangeDataFeed' = '{feed}') "
        "AS SELECT id AS k, id AS v FROM range(2)"
    )
    source, whole = opened("table", table=table), opened("table", table=table, on_change="changes")
    rows, at = through(source, spark, *ROW)
    expect("the beginning", rows, [("r", 0, 0), ("r", 1, 1)])
    spark.sql(f"INSERT INTO {table} VALUES (2, 2), (2, 2)")
    spark.sql(f"INSERT INTO {table} VALUES (3, 3)")
    bounded = opened("table", table=table, max_records_per_barrier=2)
    end = bounded.end(spark, at)
    expect("a bound", records(bounded, spark, at, end.position, *ROW), [("c", 2, 2)] * 2)
    rows, at = through(source, spark, *ROW, after=at)
    expect("appends", rows, [("c", 2, 2), ("c", 2, 2), ("c", 3, 3)])
    spark.sql(f"UPDATE {table} SET v = 9 WHERE k = 1")
    spark.sql(f"DELETE FROM {table} WHERE k = 0")
    expect("a delete", refusal(source, at), "STREAM_CHANGED")
    careless = opened("table", table=table, on_change="ignore")
    expect("a delete that is to be passed over", refusal(careless, at), "STREAM_CHANGED")
    rows, at = through(whole, spark, *ROW, after=at)
    expect("changes", rows, [("c", 1, 9), ("d", 0, 0), ("d", 1, 1)])
    expect("nothing", whole.end(spark, at), None)
    spark.sql(f"DROP TABLE {table}")
    spark.sql(f"CREATE TABLE {table} USING delta AS SELECT id AS k, id AS v FROM range(2)")
    expect("another table", refusal(whole, at), "STREAM_LOST")
    return wrong


def main(folder: str) -> None:
    engine = targets.delta(Path(folder)).engine
    print(
        json.dumps([*check(engine.spark, "fed", "true"), *check(engine.spark, "plain", "false")])
    )
    engine.close()


if __name__ == "__main__":
    main(sys.argv[1])
