"""An epoch of one view over tables in an object store: its requests and its seconds.

make bench WHAT=objects ARGS="--latency 0.04"     (docs/platforms.md)

The store is moto, on this machine. Every request waits `--latency` seconds. Two worlds take turns,
with and without the memory for small files; a writer apart from both adds one row before each
epoch, whose requests are not counted.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path

from dbt_streamsql import Engine
from dbt_streamsql.runtime.spark.session import open_session
from dbt_streamsql.runtime.spark.settings import SessionSettings, catalog_settings
from dbt_streamsql.storage.iceberg.caching_io import BYTES, RESOLVING
from tests.support import object_store
from tests.support.object_store import BUCKET, CREDENTIALS, ObjectStore

MOST = 20
"""Requests that an epoch may take, at any age of the tables."""
QUERY = "SELECT k, count(*) AS n, sum(v) AS total FROM {}.shop.sales GROUP BY k"


def main() -> int:
    """1 when an epoch takes more than MOST requests, or a view is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=13)
    parser.add_argument("--latency", type=float, default=0.0, help="seconds of each request")
    given = parser.parse_args()
    os.environ.update(CREDENTIALS)
    with object_store.server() as store, tempfile.TemporaryDirectory() as folder:
        worlds = {
            "kept": World(store, Path(folder), "kept"),
            "not kept": World(store, Path(folder), "unkept", {BYTES: "0"}),
        }
        most = 0
        for number in range(1, given.epochs + 1):
            for name, world in worlds.items():
                counts, seconds = world.epoch(number, given.latency)
                print(f"epoch {number:3}, {name:8} {seconds:5.2f} s  {_told(counts)}", flush=True)
                if name == "kept":
                    most = max(most, sum(counts.values()))
        for name, world in worlds.items():
            counts, seconds = world.nothing_new(given.latency)
            print(f"nothing new, {name:8} {seconds:5.2f} s  {_told(counts)}")
        wrong = [name for name, world in worlds.items() if world.engine.verify(world.view)]
        for world in worlds.values():
            world.engine.close()
    print(f"at most {most} requests; wrong views: {', '.join(wrong) or 'none'}")
    return 0 if most <= MOST and not wrong else 1


class World:
    """A catalog in the store with one table and one view."""

    def __init__(
        self,
        store: ObjectStore,
        folder: Path,
        name: str,
        properties: dict[str, str] | None = None,
    ) -> None:
        self._store = store
        own = {
            "type": "jdbc",
            "uri": f"jdbc:sqlite:{folder / name}.db?journal_mode=WAL&busy_timeout=20000",
            "jdbc.schema-version": "V1",
            **store.catalog_properties(),
        }
        settings = SessionSettings(
            catalog=name,
            warehouse=f"s3://{BUCKET}/{name}",
            catalog_properties=own | (properties or {}),
            connectors=("s3",),
        )
        spark = open_session(settings)
        self._writer = spark.newSession()
        for key, value in catalog_settings(settings).items():
            self._writer.conf.set(key, value)
        self._writer.conf.set(f"spark.sql.catalog.{name}.io-impl", RESOLVING)
        self._sales = f"{name}.shop.sales"
        meta = f"sqlite:///{folder / name}-meta.db"
        self.engine = Engine.open(spark=spark, catalog=name, meta=meta)
        self.view = f"{name}.shop.per_key"
        spark.sql(f"CREATE NAMESPACE {name}.shop")
        spark.sql(
            f"CREATE TABLE {self._sales} (id BIGINT, k INT, v INT) "
            "TBLPROPERTIES ('format-version' = '3')"
        )
        spark.sql(f"INSERT INTO {self._sales} SELECT id, id % 100, id FROM range(1000)")
        self.engine.create_materialized_view(self.view, QUERY.format(name))

    def epoch(self, number: int, latency: float) -> tuple[dict[str, int], float]:
        """The requests by method, and the seconds, of an epoch after one new row."""
        row = f"({1000 + number}, {number % 100}, 7)"
        self._writer.sql(f"INSERT INTO {self._sales} VALUES {row}")
        return self.nothing_new(latency)

    def nothing_new(self, latency: float) -> tuple[dict[str, int], float]:
        """The same of an epoch as things are."""
        self._store.cleared()
        self._store.latency = latency
        started = time.monotonic()
        self.engine.advance()
        seconds = time.monotonic() - started
        self._store.latency = 0.0
        return dict(self._store.counts()), seconds


def _told(counts: dict[str, int]) -> str:
    return f"{sum(counts.values()):3} requests {counts}"


if __name__ == "__main__":
    raise SystemExit(main())
