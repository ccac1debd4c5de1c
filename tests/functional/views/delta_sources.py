"""Views over Delta tables, in a process whose Spark has Delta: prints what differed as JSON.

`python -m tests.functional.views.delta_sources FOLDER SEED`
"""

from __future__ import annotations

import json
import random
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from dbt_streamsql.quoting import TableName
from dbt_streamsql.storage.java import java_class
from dbt_streamsql.storage.tables.metastore import described
from tests.staged import targets

VIEWS = {
    "rows": "SELECT k, v, name FROM {t} WHERE v IS NULL OR v > 2",
    "groups": "SELECT k % 3 AS g, count(*) AS n, sum(v) AS total, min(name) AS low FROM {t} "
    "GROUP BY k % 3",
    "joined": "SELECT d.label, t.name FROM {t} t JOIN lake.shop.labels d ON d.g = t.k % 3",
}


class Scenario:
    """One Delta table, three views over it, and random changes of the table."""

    def __init__(self, engine: Any, name: str, feed: bool, seed: int) -> None:
        self.engine, self.spark, self.name = engine, engine.spark, name
        self.table = f"spark_catalog.shop.{name}"
        self.random = random.Random(seed)
        self.modes: Counter[str] = Counter()
        self.problems: list[str] = []
        self.feed = "true" if feed else "false"
        self.create(20)
        for view, query in VIEWS.items():
            engine.create_materialized_view(self.view(view), query.format(t=self.table))

    def view(self, name: str) -> str:
        return f"lake.shop.{self.name}_{name}"

    def sql(self, text: str, **values: Any) -> None:
        self.spark.sql(text, args=values or None)

    def create(self, rows: int) -> None:
        self.sql(
            f"CREATE TABLE {self.table} USING delta TBLPROPERTIES "
            f"('delta.enableChangeDataFeed' = '{self.feed}') AS "
            f"SELECT id AS k, IF(id % 7 = 0, NULL, id % 5) AS v, concat('n', id % 4) AS name "
            f"FROM range({rows})"
        )

    def insert(self) -> None:
        k = self.random.randrange(40)
        self.sql(
            f"INSERT INTO {self.table} VALUES (:k, :v, 'new'), (:k, NULL, NULL)", k=k, v=k % 6
        )

    def update(self) -> None:
        self.sql(f"UPDATE {self.table} SET v = v + 1 WHERE k % 5 = :r", r=self.random.randrange(5))

    def delete(self) -> None:
        self.sql(f"DELETE FROM {self.table} WHERE k = :k", k=self.random.randrange(30))

    def merge(self) -> None:
        k = self.random.randrange(40)
        self.sql(
            f"MERGE INTO {self.table} t USING (SELECT * FROM VALUES (:k, 9L), (:k + 100, 1L) "
            "AS s(k, v)) s ON t.k = s.k WHEN MATCHED THEN UPDATE SET t.v = s.v "
            "WHEN NOT MATCHED THEN INSERT (k, v, name) VALUES (s.k, s.v, 'merged')",
            k=k,
        )

    def overwrite(self) -> None:
        self.sql(f"INSERT OVERWRITE {self.table} SELECT k, v, name FROM {self.table} WHERE k > 3")

    def optimize(self) -> None:
        self._delta().optimize().executeCompaction()

    def nothing(self) -> None:
        """No change at all."""

    def recreate(self) -> None:
        """Another table of the name, whose versions go beyond those of the old one."""
        self.sql(f"DROP TABLE {self.table}")
        self.create(11)
        for _ in range(14):
            self.insert()

    def vacuum(self) -> None:
        self.update()
        self.spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
        self._delta().vacuum(0.0)

    def epoch(self, change: str, *, allowed: set[str]) -> None:
        """One change, one epoch, and what every view then is."""
        getattr(self, change)()
        report = self.engine.advance()
        for view in VIEWS:
            done = report.tables[self.view(view)]
            self.modes[done.mode] += 1
            if done.mode not in allowed:
                self.problems.append(f"{change}: {view} was {done.mode}: {done.reason}")
            wrong = self.engine.verify(self.view(view))
            if wrong:
                self.problems.append(f"{change}: {view} differs: {wrong[:3]}")

    def _delta(self) -> Any:
        place = described(self.spark, TableName.parse(self.table))["Location"]
        tables = java_class(self.spark, "io.delta.tables.DeltaTable")
        return tables.forPath(self.spark._jsparkSession, place)


def main(folder: str, seed: int) -> None:
    engine = targets.delta(Path(folder)).engine
    engine.spark.sql("CREATE NAMESPACE lake.shop")
    engine.spark.sql(
        "CREATE TABLE lake.shop.labels AS SELECT id AS g, concat('l', id) AS label FROM range(2)"
    )
    changed = {"append", "incremental", "noop"}
    result: dict[str, Any] = {"problems": [], "modes": {}}
    for number, feed in enumerate((True, False)):
        name = "fed" if feed else "plain"
        scenario = Scenario(engine, name, feed, seed + number)
        changes = ["insert", "update", "delete", "merge", "overwrite"]
        scenario.random.shuffle(changes)
        for change in changes:
            scenario.epoch(change, allowed=changed)
        for change in ("nothing", "optimize"):
            scenario.epoch(change, allowed={"noop"})
        scenario.epoch("insert", allowed=changed)
        scenario.epoch("vacuum", allowed={"full"})
        scenario.epoch("recreate", allowed={"full"})
        result["problems"] += [f"{name}: {problem}" for problem in scenario.problems]
        result["modes"][name] = scenario.modes
    engine.close()
    print(json.dumps(result))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
