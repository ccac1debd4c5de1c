"""The catalog's pointer to a table's newest metadata file: read, added for a new name, swapped.

Through Iceberg's own Java; `sqlite_catalog.py` does the same in the catalog's own file.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from dbt_streamsql.storage.java import (
    instance_of,
    java_catalog,
    java_class,
    java_identifier,
    java_table,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from dbt_streamsql.quoting import TableName

_SWAPPING = "org.apache.iceberg.BaseMetastoreTableOperations"
"""Operations that commit a metadata object as it is; those of a REST catalog send only changes."""


def newest(spark: SparkSession, name: TableName) -> str:
    """The metadata file of an existing table, '' when its pointer cannot be swapped."""
    operations = java_table(spark, name).operations()
    if not instance_of(spark, operations, _SWAPPING):
        return ""
    return str(operations.current().metadataFileLocation())


def add(spark: SparkSession, name: TableName, file: str) -> None:
    """Register a new name for the table of a metadata file."""
    catalog = java_catalog(spark, name.catalog)
    catalog.registerTable(java_identifier(spark, name), file)


def swap(
    spark: SparkSession,
    name: TableName,
    base: str,
    other: TableName,
    properties: Mapping[str, str | None],
) -> bool:
    """See `IcebergTables.swap`."""
    from py4j.protocol import Py4JJavaError

    operations = java_table(spark, name).operations()
    old = operations.current()
    if old.metadataFileLocation() != base:
        return False
    new = java_table(spark, other).operations().current()
    changed = java_class(spark, "java.util.HashMap")(new.properties())
    for key, value in properties.items():
        if value is None:
            changed.remove(key)
        else:
            changed.put(key, value)
    try:
        operations.commit(old, new.replaceProperties(changed))
    except Py4JJavaError as error:
        if "CommitFailedException" in str(error.java_exception):
            return False
        raise
    return True
