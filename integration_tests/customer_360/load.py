"""What a CRM, a web site, a shop and a support desk know of the same customers.

python load.py base | change 7      (works on ./warehouse; 7 is a seed)
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = "lake.customer_360_raw"
CUSTOMERS = 1000

_TABLES = {
    "crm": "customer_id INT, name STRING, city STRING, phone STRING, updated_at BIGINT",
    "web": "visitor_id BIGINT, visits INT, country STRING, consent BOOLEAN",
    "orders": "order_id BIGINT, customer_id INT, amount DECIMAL(10, 2), ordered_on DATE",
    "support": "customer_id INT, phone STRING, consent BOOLEAN, updated_at BIGINT",
}
_MODES = ", ".join(
    f"'write.{verb}.mode' = 'merge-on-read'" for verb in ("delete", "update", "merge")
)


def base(spark: SparkSession) -> int:
    """Make the tables anew; return how many rows there are."""
    spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {SCHEMA}")
    for name, columns in _TABLES.items():
        spark.sql(f"DROP TABLE IF EXISTS {SCHEMA}.{name}")
        spark.sql(
            f"CREATE TABLE {SCHEMA}.{name} ({columns}) USING iceberg "
            f"TBLPROPERTIES ('format-version' = '3', {_MODES})"
        )
    parts = {
        # Nobody is in all of the systems but by chance.
        "crm": "CAST(id AS INT), concat('customer ', id), concat('city ', id % 30), "
        "concat('+1 ', id), 10 FROM range(:n) WHERE id % 5 <> 0",
        "web": "id, CAST(id % 40 AS INT), concat('country ', id % 7), "
        "id % 3 = 0 FROM range(:n) WHERE id % 3 <> 1",
        "orders": "id, CAST(pmod(xxhash64(id), :n) AS INT), CAST(1 + id % 90 AS DECIMAL(10, 2)), "
        "DATE'2026-01-01' + CAST(id % 300 AS INT) FROM range(3 * :n)",
        "support": "CAST(id AS INT), IF(id % 2 = 0, concat('+2 ', id), NULL), id % 4 = 0, "
        "id % 20 FROM range(:n) WHERE id % 4 < 2",
    }
    for name, rows in parts.items():
        spark.sql(f"INSERT INTO {SCHEMA}.{name} SELECT {rows}", args={"n": CUSTOMERS})
    return sum(spark.table(f"{SCHEMA}.{name}").count() for name in _TABLES)


def change(spark: SparkSession, seed: int) -> int:
    """New orders, corrected phones, lost consents, customers who leave; return the statements."""
    some = "pmod(xxhash64({key}, :seed), 40) = 0"
    statements = [
        (
            f"UPDATE {SCHEMA}.crm SET phone = NULL, updated_at = updated_at + :seed "
            f"WHERE {some.format(key='customer_id')}"
        ),
        (
            f"UPDATE {SCHEMA}.support SET phone = concat(phone, '*'), updated_at = updated_at + 5 "
            f"WHERE {some.format(key='updated_at')}"
        ),
        (
            f"UPDATE {SCHEMA}.web SET consent = NOT consent, visits = visits + 1 "
            f"WHERE {some.format(key='visitor_id + 1')}"
        ),
        f"DELETE FROM {SCHEMA}.crm WHERE {some.format(key='customer_id + 2')}",
        f"DELETE FROM {SCHEMA}.orders WHERE {some.format(key='order_id')}",
        (
            f"INSERT INTO {SCHEMA}.orders SELECT :seed * 1000000 + id, CAST(2000 + id AS INT), 5, "
            "DATE'2026-11-01' FROM range(5)"
        ),
    ]
    for statement in statements:
        spark.sql(statement, args={"seed": seed})
    return len(statements)


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
