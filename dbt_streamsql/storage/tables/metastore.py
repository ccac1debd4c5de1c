"""What a metastore (Hive's, or Spark's own) records about a table, read by SQL."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence

from pyspark.errors import PySparkException
from pyspark.sql import Row, SparkSession

from dbt_streamsql.errors import Place, StreamSqlError
from dbt_streamsql.quoting import TableName, quote
from dbt_streamsql.storage.staged_table import TableSpec


def described(spark: SparkSession, name: TableName) -> dict[str, str]:
    """The table details from DESCRIBE EXTENDED; {} when there is no table."""
    try:
        rows = description(spark, name)
    except PySparkException as error:
        if error.getCondition() in {"SCHEMA_NOT_FOUND", "TABLE_OR_VIEW_NOT_FOUND"}:
            return {}
        raise
    return details(rows)


def description(spark: SparkSession, name: TableName) -> list[Row]:
    """The rows of DESCRIBE EXTENDED: first the columns."""
    return spark.sql(f"DESCRIBE EXTENDED {name.sql}").collect()


def details(rows: Sequence[Row]) -> dict[str, str]:
    """The table details in a description. Error: StopIteration when there are none."""
    start = next(i for i, row in enumerate(rows) if row[0].startswith("# Detailed Table"))
    return {row[0]: row[1] for row in rows[start:]}


def property_of(spark: SparkSession, name: TableName, key: str) -> str:
    """A table property, '' when the table has none of that name."""
    rows = spark.sql(f"SHOW TBLPROPERTIES {name.sql}").collect()
    return next((str(row["value"]) for row in rows if row["key"] == key), "")


def folder_of(spark: SparkSession, spec: TableSpec, token: str, root: str) -> str:
    """A folder for one version of a table: its location, and a unique token.

    Error: ATOMIC_UNSUPPORTED when a table of another format has that name.
    """
    old = described(spark, spec.name)
    if old and old.get("Provider", "view").lower() != spec.format:
        raise unsupported(spec, f"the existing table has format {old.get('Provider', 'view')}")
    if spec.location:
        return f"{spec.location.rstrip('/')}-{token}"
    where = f"{quote(spec.name.catalog)}.{quote(spec.name.schema)}"
    rows = spark.sql(f"DESCRIBE NAMESPACE {where}").collect()
    place = root or next(str(row[1]) for row in rows if row[0] == "Location")
    return posixpath.join(place, f"{spec.name.table}-{token}")


def same_folder(left: str, right: str) -> bool:
    """Whether two texts name the same folder: Spark writes `file:/x` where it was given `/x`."""
    one, other = (re.sub(r"^file:/*", "/", folder).rstrip("/") for folder in (left, right))
    return one == other


def unsupported(spec: TableSpec, why: str) -> StreamSqlError:
    return StreamSqlError(
        "ATOMIC_UNSUPPORTED",
        f"this {spec.format} table cannot be published in one step",
        given=why,
        allowed="a table that keeps its format, and for parquet and orc its columns, without "
        "partitions",
        hint="use Iceberg, drop the table first, or set `atomic: false`",
        place=Place(str(spec.name)),
    )
