"""The schemas, tables and columns of a catalog as the `information_schema` of the SQL standard.

Spark's catalogs have none, and the macros of dbt packages query it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import DecimalType, StructType

from dbt_streamsql.plan.algebra.schema import HIDDEN_PREFIX
from dbt_streamsql.quoting import TableName, quote
from dbt_streamsql.storage.columns import type_text
from dbt_streamsql.storage.tables import sql_functions
from dbt_streamsql.storage.tables.listing import listed

SCHEMA = "information_schema"

_TABLE = (("table_catalog", "string"), ("table_schema", "string"), ("table_name", "string"))


@dataclass(frozen=True)
class Catalog:
    """What is looked up in one catalog.

    `maintained` are the tables that the engine maintains; `staged` those that an open epoch has
    created or written: the SQL that reads the visible version of each.
    """

    spark: SparkSession
    name: str
    maintained: Collection[str] = ()
    staged: Mapping[TableName, str] = field(default_factory=dict)

    @cached_property
    def schemas(self) -> list[str]:
        """The schemas of users."""
        rows = self.spark.sql(f"SHOW NAMESPACES IN {quote(self.name)}").collect()
        names = (row[0].strip("`") for row in rows)
        return sorted(name for name in names if not name.startswith(HIDDEN_PREFIX))

    @property
    def has_its_own(self) -> bool:
        """Whether the catalog has an information schema, as those of databases do."""
        return SCHEMA in map(str.lower, self.schemas)

    def relations(self) -> Iterator[tuple[TableName, str]]:
        """Every table and view with its type."""
        for schema in self.schemas:
            where = f"{quote(self.name)}.{quote(schema)}"
            tables, views = listed(lambda sql: self.spark.sql(sql).collect(), where)
            new = {
                at.table for at in self.staged if (at.catalog, at.schema) == (self.name, schema)
            }
            for table in sorted({*tables, *new}):
                name = TableName(self.name, schema, table)
                # As in Databricks: dbt_utils translates it to dbt's own term.
                kept = str(name) in self.maintained or name in self.staged
                yield name, "MATERIALIZED_VIEW" if kept else "BASE TABLE"
            for view in sorted(views):
                if not view.startswith(sql_functions.PREFIX):
                    yield TableName(self.name, schema, view), "VIEW"

    def fields(self, name: TableName) -> StructType:
        """The columns of a table or view; none when it can no longer be read."""
        try:
            return self.spark.sql(f"SELECT * FROM {self.staged.get(name, name.sql)}").schema
        except PySparkException:
            return StructType()


@dataclass(frozen=True)
class View:
    """One view of the schema: its columns (name, Spark type), and how its rows are found."""

    columns: tuple[tuple[str, str], ...]
    rows: Callable[[Catalog], Iterator[tuple[Any, ...]]]


def find(name: TableName) -> View | None:
    """The view of that name, case-insensitive."""
    return _VIEWS.get(name.table.lower()) if name.schema.lower() == SCHEMA else None


def _schemata(catalog: Catalog) -> Iterator[tuple[Any, ...]]:
    return ((catalog.name, schema) for schema in catalog.schemas)


def _tables(catalog: Catalog) -> Iterator[tuple[Any, ...]]:
    for name, kind in catalog.relations():
        yield (name.catalog, name.schema, name.table, kind)


def _columns(catalog: Catalog) -> Iterator[tuple[Any, ...]]:
    for name, _ in catalog.relations():
        shown = [f for f in catalog.fields(name) if not f.name.startswith(HIDDEN_PREFIX)]
        for position, column in enumerate(shown, start=1):
            kind = column.dataType
            digits: tuple[int | None, int | None] = (None, None)
            if isinstance(kind, DecimalType):
                digits = (kind.precision, kind.scale)
            yield (
                *(name.catalog, name.schema, name.table),
                *(column.name, position, None),
                *("YES" if column.nullable else "NO", type_text(kind), None),
                *digits,
                column.metadata.get("comment"),
            )


_VIEWS: Mapping[str, View] = {
    "schemata": View((("catalog_name", "string"), ("schema_name", "string")), _schemata),
    "tables": View((*_TABLE, ("table_type", "string")), _tables),
    "columns": View(
        (
            *_TABLE,
            ("column_name", "string"),
            ("ordinal_position", "int"),
            ("column_default", "string"),
            ("is_nullable", "string"),
            ("data_type", "string"),
            ("character_maximum_length", "int"),
            ("numeric_precision", "int"),
            ("numeric_scale", "int"),
            ("comment", "string"),
        ),
        _columns,
    ),
}
