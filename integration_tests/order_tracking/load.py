"""Orders and their shipments, as FLIP-292 has them in its example.

python load.py base | change 7      (works on ./warehouse; 7 is a seed)
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = "lake.order_tracking_raw"
ORDERS = 1000

_TABLES = {
    "orders": "gmt_create TIMESTAMP, order_id STRING, user_id INT, product_id STRING, num BIGINT",
    "logistics": (
        "gmt_modified TIMESTAMP, order_line_id STRING, order_id STRING, product_id STRING, "
        "shipment_status STRING"
    ),
}
_MODES = ", ".join(
    f"'write.{verb}.mode' = 'merge-on-read'" for verb in ("delete", "update", "merge")
)
_DAY = "TIMESTAMP'2026-11-01 08:00:00'"


def base(spark: SparkSession) -> int:
    """Make the tables anew; return how many rows there are."""
    spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {SCHEMA}")
    for name, columns in _TABLES.items():
        spark.sql(f"DROP TABLE IF EXISTS {SCHEMA}.{name}")
        # State TTL asks each row when it was written: that needs format version 3.
        spark.sql(
            f"CREATE TABLE {SCHEMA}.{name} ({columns}) USING iceberg "
            f"TBLPROPERTIES ('format-version' = '3', {_MODES})"
        )
    _orders(spark, 0, ORDERS)
    spark.sql(
        f"INSERT INTO {SCHEMA}.logistics SELECT {_DAY} + make_dt_interval(0, 1, id), "
        "concat('l', id), concat('o', id), concat('p', id % 50), "
        "IF(id % 3 = 0, 'SHIPPED', 'PACKED') FROM range(:n)",
        args={"n": ORDERS},
    )
    return sum(spark.table(f"{SCHEMA}.{name}").count() for name in _TABLES)


def change(spark: SparkSession, seed: int) -> int:
    """New orders, packed lines that are shipped; return the statements."""
    _orders(spark, ORDERS * seed, ORDERS // 20)
    spark.sql(
        f"UPDATE {SCHEMA}.logistics SET shipment_status = 'SHIPPED', "
        "gmt_modified = gmt_modified + make_dt_interval(1) "
        "WHERE shipment_status = 'PACKED' AND pmod(xxhash64(order_id, :seed), 10) = 0",
        args={"seed": seed},
    )
    return 2


def _orders(spark: SparkSession, first: int, count: int) -> None:
    spark.sql(
        f"INSERT INTO {SCHEMA}.orders SELECT {_DAY} + make_dt_interval(0, 0, id % 1000), "
        "concat('o', id), CAST(id % 200 AS INT), concat('p', id % 50), 1 + id % 4 "
        "FROM range(:first, :first + :count)",
        args={"first": first, "count": count},
    )


def main() -> None:
    """Run one step on the warehouse of this folder."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    steps = parser.add_subparsers(dest="step", required=True)
    steps.add_parser("base")
    steps.add_parser("change").add_argument("seed", type=int)
    given = parser.parse_args()
    from dbt_streamsql import Engine

    engine = Engine.open("./warehouse")
    try:
        if given.step == "base":
            print(f"{base(engine.spark)} rows")
        else:
            print(f"{change(engine.spark, given.seed)} statements")
    finally:
        engine.close()


if __name__ == "__main__":
    main()
