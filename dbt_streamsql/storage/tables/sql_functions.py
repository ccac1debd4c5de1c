"""How SQL functions are stored: as unlisted views, with the definition as a property.

So a function is replaced in one step, is dropped with its schema, is checked by Spark when it is
created, and needs only views from a catalog.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dbt_streamsql.quoting import TableName

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PREFIX = "__streamsql_function_"
PROPERTY = "streamsql.function"

_ABSENT = {"SCHEMA_NOT_FOUND", "TABLE_OR_VIEW_NOT_FOUND", "REQUIRES_SINGLE_PART_NAMESPACE"}


@dataclass(frozen=True)
class FunctionView:
    """The view that stores a SQL function: quoted name, its property, and a query with which Spark
    checks the body."""

    view: str
    property: str
    definition: str
    query: str


def view_of(name: TableName) -> TableName:
    """The view that stores a function."""
    return TableName(name.catalog, name.schema, f"{PREFIX}{name.table}")


def stored(spark: SparkSession, name: TableName) -> str | None:
    """The definition of a function, None when there is none."""
    from pyspark.errors import PySparkException

    try:
        rows = spark.sql(f"SHOW TBLPROPERTIES {view_of(name).sql}").collect()
    except PySparkException as error:
        if error.getCondition() in _ABSENT:
            return None
        raise
    return next((row[1] for row in rows if row[0] == PROPERTY), None)
