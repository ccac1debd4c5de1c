"""Inputs in DuckDB whose rows know when they were written, and what has expired at a barrier."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from dbt_streamsql.plan.algebra.relational import CLOCK
from dbt_streamsql.plan.algebra.schema import WEIGHT
from dbt_streamsql.quoting import TableName
from tests.differential.duck_world import DuckWorld

COLUMNS = {
    "o": [("k", "bigint"), ("x", "bigint")],
    "s": [("k", "bigint"), ("y", "bigint")],
    "u": [("k", "bigint"), ("z", "bigint")],
}


class AgedWorld(DuckWorld):
    """Beside its columns each row has `_id`, and `_at`, when it was written in milliseconds."""

    def __init__(self) -> None:
        super().__init__(COLUMNS, {})
        for schema in ("s", "old"):
            for name in COLUMNS:
                self.run(f"ALTER TABLE lake.{schema}.{name} ADD COLUMN _id BIGINT")
                self.run(f"ALTER TABLE lake.{schema}.{name} ADD COLUMN _at BIGINT")
        self.clock = self.since = 1_000_000
        self.floors: dict[str, int] = {}
        """Of a table, the time before which what was written has expired under an earlier TTL."""
        self._ids = 0

    def turn(self, random: Random) -> None:
        """One epoch of random writes, deletes, and rows that are written again as they are."""
        self.since, self.clock = self.clock, self.clock + random.choice([1000, 2000, 5000])
        made: list[str] = []
        for name in COLUMNS:
            for _ in range(random.choice([0, 0, 1, 1, 2])):
                made += self._write(random, name)
        self.advance(made, quiet=True)

    def _write(self, random: Random, name: str) -> Sequence[str]:
        at = random.randint(self.since + 1, self.clock)
        value = COLUMNS[name][1][0]
        kind = random.choice(["insert", "insert", "insert", "update", "again", "delete"])
        if kind == "insert":
            rows = []
            for _ in range(random.randint(1, 3)):
                self._ids += 1
                values = (str(random.choice([*range(n), "NULL"])) for n in (4, 6))
                rows.append(f"({', '.join(values)}, {self._ids}, {at})")
            return [f"INSERT INTO {name} VALUES {', '.join(rows)}"]
        some = f"WHERE _id % 5 = {random.randrange(5)}"
        if kind == "delete":
            return [f"DELETE FROM {name} {some}"]
        new = f"{value} = {random.choice(['3', 'NULL', f'{value} + 1'])}, "
        return [f"UPDATE {name} SET {new if kind == 'update' else ''}_at = {at} {some}"]

    # -- what `DuckRelations` asks ------------------------------------------------------------------

    def live(self, table: str, moment: str, ttl: int) -> str:
        """The rows of a table before or after the epoch that have not expired."""
        name = TableName.parse(table).table
        view = f"live_{moment}_{name}_{ttl}"
        self.run(f"CREATE OR REPLACE TEMP VIEW {view} AS {self.remembered(name, moment, ttl)}")
        return view

    def lapsing(self, table: str, ttl: int) -> str:
        """Signed rows: all that came, and of those that went the ones that had not expired."""
        name = TableName.parse(table).table
        view = f"lapsing_{name}_{ttl}"
        old = self.remembered(name, "before", ttl)
        self.run(
            f"CREATE OR REPLACE TEMP VIEW {view} AS "
            f"SELECT *, CAST(1 AS BIGINT) AS {WEIGHT} FROM lake.s.{name} WHERE _at > {self.since} "
            f"UNION ALL SELECT *, CAST(-1 AS BIGINT) FROM ({old}) b WHERE NOT EXISTS "
            f"(SELECT 1 FROM lake.s.{name} n WHERE n._id = b._id AND n._at = b._at)"
        )
        return view

    def of_groups(self, ttl: int) -> tuple[int, int]:
        return (self.clock - ttl) * 1000, self.clock * 1000

    def now(self, table: str) -> str:
        if table != CLOCK:
            return super().now(table)
        now = f"make_timestamp({self.clock * 1000})"
        return f"(SELECT {now} AS now, CAST({now} AS DATE) AS today)"

    # -- what is meant ---------------------------------------------------------------------------

    def remembered(self, name: str, moment: str, ttl: int) -> str:
        """The same by the words of docs/state_ttl.md, as a query."""
        schema, came = ("old", "") if moment == "before" else ("s", f" OR _at > {self.since}")
        oldest = max(self.clock - ttl, self.floors.get(name, 0))
        where = f" WHERE _at >= {oldest}{came}" if ttl else ""
        return f"SELECT * FROM lake.{schema}.{name}{where}"
