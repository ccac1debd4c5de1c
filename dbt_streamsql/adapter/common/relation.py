"""Relations with three-part names, `catalog`.`schema`.`table`, always back-ticked."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from dbt.adapters.base.column import Column
from dbt.adapters.base.relation import BaseRelation, InformationSchema, Policy
from dbt.adapters.spark.column import SparkColumn
from dbt.adapters.spark.relation import SparkRelation

from dbt_streamsql.quoting import TableName, quote


@dataclass
class StreamSqlPolicy(Policy):
    database: bool = True
    schema: bool = True
    identifier: bool = True


@dataclass(frozen=True, eq=False, repr=False)
class StreamSqlRelation(SparkRelation):
    """A table, view or materialized view. `database` is Spark's catalog."""

    quote_policy: Policy = field(default_factory=StreamSqlPolicy)
    include_policy: Policy = field(default_factory=StreamSqlPolicy)

    def __post_init__(self) -> None:
        """dbt-spark forbids a database here; this adapter needs it."""

    def render(self) -> str:
        return BaseRelation.render(self)

    def quoted(self, identifier: str) -> str:
        return quote(identifier)

    def information_schema(self, view_name: str | None = None) -> InformationSchema:
        return replace(super().information_schema(view_name), quote_character="`")

    def in_catalog(self, catalog: str) -> TableName:
        """The name as the engine knows it, with `catalog` where dbt-spark's macros omit it.

        Error: IDENTIFIER_INVALID.
        """
        parts = (self.database or catalog, self.schema or "", self.identifier or "")
        return TableName(*parts).checked()


@dataclass
class StreamSqlColumn(SparkColumn):
    """A column with its Spark type, such as `bigint`, `decimal(10,2)` or `array<string>`."""

    @property
    def quoted(self) -> str:
        return quote(self.column)

    @property
    def _kind(self) -> str:
        return self.dtype.lower().partition("(")[0].strip()

    def is_string(self) -> bool:
        return self._kind in {"string", "varchar", "char"}

    def is_integer(self) -> bool:
        return self._kind in {"tinyint", "smallint", "int", "integer", "bigint"}

    def is_float(self) -> bool:
        return self._kind in {"float", "real", "double"}

    def is_numeric(self) -> bool:
        return self._kind in {"decimal", "numeric", "dec"}

    def can_expand_to(self, other_column: Column) -> bool:  # noqa: ARG002 - dbt's signature
        """Never: Spark's strings have no size to grow."""
        return False
