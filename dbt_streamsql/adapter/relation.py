"""Relations with three-part names, `catalog`.`schema`.`table`, always back-ticked."""

from __future__ import annotations

from dataclasses import dataclass, field

from dbt.adapters.base.relation import BaseRelation, Policy
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

    def in_catalog(self, catalog: str) -> TableName:
        """The name as the engine knows it; `catalog` where dbt-spark's macros leave it out.

        Error: IDENTIFIER_INVALID.
        """
        parts = (self.database or catalog, self.schema or "", self.identifier or "")
        return TableName(*parts).checked()


@dataclass
class StreamSqlColumn(SparkColumn):
    @property
    def quoted(self) -> str:
        return quote(self.column)
