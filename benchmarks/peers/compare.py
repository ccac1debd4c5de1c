"""Whether the rows that a system has in the end are the query's, row by row.

The query itself is asked once, of the files, by plain Spark; ours and everybody else's rows are
compared with that, and so with each other.
"""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from benchmarks.peers import queries
from benchmarks.peers.slices import Feed
from benchmarks.peers.spark import read

CHANGE = "op"
"""The column of a changelog that says what kind of change a row is."""
_ADDED = ("INSERT", "UPDATE_AFTER")
_VIEWS = ("answer_expected", "answer_found")


def differing(
    spark: SparkSession, query: str, feed: Feed, last: int, answer: Path, folder: Path
) -> int:
    """Rows (each as often as it is there) that only one of the answer and the query has.

    `last` is the last slice that the answer knows; `folder` keeps what the query says.
    """
    known = folder / f"{query}_{feed.size}_{last}"
    if not (known / "_SUCCESS").is_file():
        for table in queries.READS[query]:
            files = feed.until(table, last)
            read(spark, table, files).createOrReplaceTempView(f"events_{table}")
        text = _over_events(query)
        spark.sql(text).write.mode("overwrite").parquet(str(known))
    expected = spark.read.parquet(str(known))
    for view, rows in zip(_VIEWS, (expected, rows_of(spark, answer, expected)), strict=True):
        rows.createOrReplaceTempView(view)
    names = ", ".join(f"`{name}`" for name in expected.columns)
    left, right = (
        f"SELECT {names}, {n} AS side FROM {v}" for v, n in zip(_VIEWS, (1, -1), strict=True)
    )
    found = spark.sql(
        f"SELECT coalesce(sum(abs(more)), 0) FROM (SELECT sum(side) AS more FROM "
        f"({left} UNION ALL {right}) GROUP BY {names})"
    )
    return int(found.collect()[0][0])


def rows_of(spark: SparkSession, answer: Path, like: DataFrame) -> DataFrame:
    """An answer with the names and types of the query's; a changelog is folded."""
    if not any(answer.iterdir()):
        return like.limit(0)
    found = spark.read.parquet(str(answer))
    if CHANGE in found.columns:
        found = folded(found)
    return found.selectExpr(
        *(
            f"CAST(`{name}` AS {field.dataType.simpleString()}) AS `{field.name}`"
            for name, field in zip(found.columns, like.schema.fields, strict=True)
        )
    )


def folded(changelog: DataFrame) -> DataFrame:
    """The rows that a changelog leaves; a row that is taken more often than given stays, as -n.

    Such a row is never in the query, so that it is told as a difference.
    """
    names = [name for name in changelog.columns if name != CHANGE]
    counted = changelog.selectExpr(
        *(f"`{name}`" for name in names),
        f"CASE WHEN {CHANGE} IN {_ADDED} THEN 1 ELSE -1 END AS change",
    )
    net = counted.groupBy(*names).agg({"change": "sum"}).withColumnRenamed("sum(change)", "n")
    left = net.where("n <> 0").selectExpr(
        *(f"`{name}`" for name in names), "explode(sequence(1, CAST(n AS INT))) AS copy"
    )
    return left.drop("copy")


def _over_events(query: str) -> str:
    text = queries.spark(query, "events")
    for table in queries.READS[query]:
        text = text.replace(f"events.{table}", f"events_{table}")
    return text
