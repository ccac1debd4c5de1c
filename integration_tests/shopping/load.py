"""Baskets of a shop: the example by which FLIP-276 explains consistency, with more users.

User 1 is the textbook's: 100 pieces for 1000 at first, 200 more for 1500 later. For everyone else
an item costs 5 + item_id a piece, so an average that mixes two barriers gives itself away.

    python load.py base | arrive 7 | change 7      (works on ./warehouse; 7 is a seed)
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLE = "lake.shopping_raw.shopping"
ROWS, ARRIVING = 5000, 200

_PURCHASES = f"""
    INSERT INTO {TABLE}
    SELECT shopping_id,
           -- about one in forty is a guest
           nullif(2 + pmod(xxhash64(id, :seed, 1), 40), 2),
           item_id, amount, cast(amount * (5 + item_id) AS DECIMAL(12, 2))
    FROM (
        SELECT id, id + :first AS shopping_id, pmod(xxhash64(id, :seed, 2), 25) AS item_id,
               1 + pmod(xxhash64(id, :seed, 3), 9) AS amount
        FROM range(:rows)
    )
"""


def base(spark: SparkSession) -> int:
    """Make the table anew with the first purchases; return how many."""
    spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.shopping_raw")
    spark.sql(f"DROP TABLE IF EXISTS {TABLE}")
    spark.sql(f"""
        CREATE TABLE {TABLE}
            (shopping_id BIGINT, user_id BIGINT, item_id BIGINT, amount BIGINT,
             price DECIMAL(12, 2))
        USING iceberg
        TBLPROPERTIES ('format-version' = '3', 'write.delete.mode' = 'merge-on-read',
                       'write.update.mode' = 'merge-on-read', 'write.merge.mode' = 'merge-on-read')
    """)
    spark.sql(_PURCHASES, args={"first": 2, "rows": ROWS, "seed": 1})
    spark.sql(f"INSERT INTO {TABLE} VALUES (0, 1, 1, 100, 1000.00)")
    return ROWS + 1


def arrive(spark: SparkSession, seed: int) -> int:
    """Append new purchases, and user 1's second one if it is not there; return how many."""
    first = spark.sql(f"SELECT max(shopping_id) + 1 FROM {TABLE}").collect()[0][0]
    spark.sql(_PURCHASES, args={"first": first, "rows": ARRIVING, "seed": seed})
    known = spark.sql(f"SELECT 1 FROM {TABLE} WHERE shopping_id = 1").collect()
    if not known:
        spark.sql(f"INSERT INTO {TABLE} VALUES (1, 1, 1, 200, 1500.00)")
    return ARRIVING + (not known)


def change(spark: SparkSession, seed: int) -> None:
    """Amounts put right, purchases booked on another user or item, purchases given back."""
    hit = "user_id <> 1 AND pmod(xxhash64(shopping_id, :seed, {salt}), 50) = 0"
    for salt, text in enumerate(
        (
            "UPDATE {t} SET amount = amount + 1, price = (amount + 1) * (5 + item_id) WHERE {hit}",
            "UPDATE {t} SET user_id = 2 + user_id % 40 WHERE {hit}",
            "UPDATE {t} SET item_id = item_id + 1, price = amount * (6 + item_id) WHERE {hit}",
            "DELETE FROM {t} WHERE {hit}",
        )
    ):
        spark.sql(text.format(t=TABLE, hit=hit.format(salt=salt)), args={"seed": seed})


def main() -> None:
    from dbt_streamsql import Engine

    parser = argparse.ArgumentParser(description="load or change the baskets of ./warehouse")
    parser.add_argument("--warehouse", default="warehouse")
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("base", help="the table with the first purchases")
    for verb, text in (("arrive", "new purchases"), ("change", "updates and deletes")):
        verbs.add_parser(verb, help=text).add_argument("seed", type=int)
    given = parser.parse_args()
    engine = Engine.open(warehouse=given.warehouse)
    try:
        if given.verb == "base":
            print(base(engine.spark), "purchases")
        elif given.verb == "arrive":
            print(arrive(engine.spark, given.seed), "purchases")
        else:
            change(engine.spark, given.seed)
    finally:
        engine.close()


if __name__ == "__main__":
    main()
