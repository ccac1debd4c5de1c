"""Nexmark's tables, and what happens to them, as statements that Spark and DuckDB both run.

The rows lie in parquet files and are read as `generated_<table>`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from benchmarks.nexmark import events

COLUMNS = {
    "person": "id BIGINT, name STRING, email STRING, credit_card STRING, city STRING, "
    "state STRING, ts TIMESTAMP, extra STRING",
    "auction": "id BIGINT, item_name STRING, description STRING, initial_bid BIGINT, "
    "reserve BIGINT, ts TIMESTAMP, expires TIMESTAMP, seller BIGINT, category BIGINT, "
    "extra STRING",
    "bid": "auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, "
    "ts TIMESTAMP, arrived TIMESTAMP, extra STRING",
    "side_input": "key BIGINT, value STRING",
}
TABLES = tuple(COLUMNS)
_PROPERTIES = ", ".join(
    f"'{key}' = '{value}'"
    for key, value in {
        "format-version": "3",
        "write.delete.mode": "merge-on-read",
        "write.update.mode": "merge-on-read",
    }.items()
)


@dataclass(frozen=True)
class Stream:
    """`first` events, then `appending` epochs of `size` events, then `retracting` ones.

    Those also update and delete bids, auctions, a person and a row of the side table.
    """

    first: int
    appending: int
    retracting: int
    size: int
    seed: int

    def write(self, folder: Path) -> None:
        """The files, one a table."""
        made = events.generate(self.first, self.appending + self.retracting, self.size, self.seed)
        for table in TABLES:
            pq.write_table(getattr(made, table), folder / f"{table}.parquet")

    def statements(self, schema: str, epoch: int) -> list[str]:
        """One epoch, from 0."""
        done = [arrive(schema, table, epoch + 1) for table in ("person", "auction", "bid")]
        step = epoch - self.appending
        return [*done, *(_retractions(schema, step) if step >= 0 else ())]


def create(schema: str, table: str) -> str:
    """An empty table, for DuckDB; see `ICEBERG`."""
    return f"CREATE TABLE {schema}.{table} ({COLUMNS[table]})"


ICEBERG = f" USING iceberg TBLPROPERTIES ({_PROPERTIES})"
"""What Spark wants at the end of `create`."""


def arrive(schema: str, table: str, batch: int) -> str:
    """The rows of a batch; 0 is what is there at first."""
    names = ", ".join(column.strip().split()[0] for column in COLUMNS[table].split(","))
    return (
        f"INSERT INTO {schema}.{table} SELECT {names} FROM generated_{table} WHERE batch = {batch}"
    )


def register(spark: Any, files: Path) -> None:
    """Let Spark's session know the files, as temporary views."""
    for table in TABLES:
        path = str(files / f"{table}.parquet")
        spark.read.parquet(path).createOrReplaceTempView(f"generated_{table}")


def load(spark: Any, schema: str) -> None:
    """The tables with what is there at first, in `schema`, which exists."""
    for table in TABLES:
        spark.sql(create(schema, table) + ICEBERG)
        spark.sql(arrive(schema, table, 0))


def forget(spark: Any) -> None:
    """Drop the temporary views that the statements of epochs read."""
    for table in TABLES:
        spark.catalog.dropTempView(f"generated_{table}")


def _retractions(at: str, step: int) -> list[str]:
    """Late corrections: prices, categories, ends of auctions; and rows that should not be."""
    end = "expires = expires + INTERVAL 5 SECONDS"
    state = "state = CASE state WHEN 'OR' THEN 'WY' ELSE 'OR' END"
    texts = f"""
        UPDATE {at}.bid SET price = price * 2 + 1 WHERE auction % 29 = {step} AND bidder % 3 = 0;
        DELETE FROM {at}.bid WHERE auction % 31 = {step} AND bidder % 2 = 1;
        UPDATE {at}.auction SET category = 10 + (category - 9) % 5, {end} WHERE id % 23 = {step};
        DELETE FROM {at}.auction WHERE id % 41 = {step};
        UPDATE {at}.person SET {state} WHERE id % 19 = {step};
        UPDATE {at}.side_input SET value = concat(value, '!') WHERE key % 50 = {2 * step}"""
    return [text.strip() for text in texts.split(";")]
