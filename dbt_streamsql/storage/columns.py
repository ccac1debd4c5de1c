"""Columns as DDL text, with every name quoted."""

from __future__ import annotations

from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from dbt_streamsql.quoting import quote


def type_ddl(kind: DataType) -> str:
    """A type with the names of its fields quoted: ``STRUCT<`a b`: INT>``."""
    if isinstance(kind, StructType):
        return f"STRUCT<{', '.join(f'{quote(f.name)}: {type_ddl(f.dataType)}' for f in kind)}>"
    if isinstance(kind, ArrayType):
        return f"ARRAY<{type_ddl(kind.elementType)}>"
    if isinstance(kind, MapType):
        return f"MAP<{type_ddl(kind.keyType)}, {type_ddl(kind.valueType)}>"
    return str(kind.simpleString())


def same_columns(left: StructType, right: StructType) -> bool:
    """Whether names, order and types agree; Spark does not tell names by their case."""

    def told(schema: StructType) -> list[tuple[str, str]]:
        return [(field.name.lower(), type_ddl(field.dataType).lower()) for field in schema]

    return told(left) == told(right)
