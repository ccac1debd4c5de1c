"""The inputs in DuckDB: every base table as it is (`lake.s`) and as it was (`lake.old`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import duckdb

from dbt_streamsql.plan.algebra.catalog import TableInfo
from dbt_streamsql.plan.algebra.schema import WEIGHT, Column
from dbt_streamsql.quoting import TableName
from tests.differential.duck_dialect import to_duck, to_duck_type

Columns = Sequence[tuple[str, str]]
"""Names with Spark types; `not null` may follow a type."""


class DuckWorld:
    """One connection; statements of an epoch name tables plainly and change `lake.s`."""

    def __init__(
        self, tables: Mapping[str, Columns], views: Mapping[str, tuple[str, Columns]]
    ) -> None:
        self.connection = duckdb.connect(config={"threads": 1})
        for statement in (
            "SET TimeZone = 'UTC'",
            "ATTACH ':memory:' AS lake",
            "CREATE SCHEMA lake.s",
            "CREATE SCHEMA lake.old",
            "CREATE SCHEMA lake.v",
            "USE lake.s",
        ):
            self.run(statement)
        self.tables: dict[str, TableInfo] = {}
        self._moved: dict[str, bool] = {}
        for name, columns in tables.items():
            self._create(name, columns)
        for name, (text, columns) in views.items():
            full = TableName("lake", "s", name)
            known = tuple(Column(*column) for column in columns)
            self.run(f"CREATE VIEW lake.s.{name} AS {to_duck(text)}")
            self.tables[str(full)] = TableInfo(full, known, True, text, "lake", "s")

    def _create(self, name: str, columns: Columns) -> None:
        fields, known = [], []
        for column, type_ in columns:
            kind = type_.removesuffix(" not null")
            sure = kind != type_
            fields.append(f"{column} {to_duck_type(kind)}{' NOT NULL' if sure else ''}")
            known.append(Column(column, kind, not sure))
        for schema in ("s", "old"):
            self.run(f"CREATE TABLE lake.{schema}.{name} ({', '.join(fields)})")
        full = TableName("lake", "s", name)
        self.tables[str(full)] = TableInfo(full, tuple(known))
        self._moved[name] = False

    def add(self, name: str, columns: Sequence[Column], rows: str) -> None:
        """A table that something else than statements fills, with its first rows."""
        for schema in ("s", "old"):
            self.run(f'CREATE TABLE lake.{schema}."{name}" AS {rows}')
        full = TableName("lake", "s", name)
        self.tables[str(full)] = TableInfo(full, tuple(columns))
        self._moved[name] = False

    def bring(self, name: str, rows: str) -> None:
        """The rows of such a table in this epoch."""
        self.run(f'CREATE OR REPLACE TABLE lake.old."{name}" AS FROM lake.s."{name}"')
        self.run(f'CREATE OR REPLACE TABLE lake.s."{name}" AS {rows}')
        self._moved[name] = self._difference(name)

    def run(self, sql: str) -> None:
        """One statement of DuckDB."""
        self.connection.execute(sql)

    def rows(self, sql: str) -> list[tuple]:
        """The rows of a query of DuckDB."""
        return self.connection.execute(sql).fetchall()

    def advance(self, statements: Sequence[str], *, quiet: bool) -> None:
        """One epoch: what was is kept, the statements run.

        `quiet`: a table whose changes cancel counts as unchanged, else as changed by nothing.
        """
        for name in self._moved:
            if self._moved[name]:
                self.run(f"CREATE OR REPLACE TABLE lake.old.{name} AS FROM lake.s.{name}")
        for statement in statements:
            self.run(statement)
        for name in self._moved:
            touched = any(f" {name} " in f"{statement} " for statement in statements)
            self._moved[name] = touched and (self._difference(name) or not quiet)

    def _difference(self, name: str) -> bool:
        """Keep the signed rows of this epoch; whether there are any."""
        self.run(
            f"CREATE OR REPLACE TEMP TABLE d_{name} AS "
            f"SELECT * EXCLUDE (n__), CAST(sum(n__) AS BIGINT) AS {WEIGHT} FROM ("
            f"SELECT *, 1 AS n__ FROM lake.s.{name} "
            f"UNION ALL SELECT *, -1 FROM lake.old.{name}) GROUP BY ALL HAVING sum(n__) <> 0"
        )
        return bool(self.rows(f"SELECT count(*) FROM d_{name}")[0][0])

    def unchanged(self, table: str) -> bool:
        """Whether the engine would know that nothing changed."""
        return not self._moved[TableName.parse(table).table]

    def changed(self, table: str) -> str:
        """The signed rows of this epoch, consolidated."""
        return f"d_{TableName.parse(table).table}"

    def before(self, table: str) -> str:
        return f"lake.old.{TableName.parse(table).table}"

    def after(self, table: str) -> str:
        return f"lake.s.{TableName.parse(table).table}"

    def now(self, table: str) -> str:
        """An input as it is now."""
        return TableName.parse(table).sql

    def close(self) -> None:
        self.connection.close()
