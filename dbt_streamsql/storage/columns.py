"""Columns as DDL text, with every name quoted."""

from __future__ import annotations

import re

from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

from dbt_streamsql.quoting import quote

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def type_ddl(kind: DataType) -> str:
    """A type with the names of its fields quoted: ``STRUCT<`a b`: INT>``."""
    if isinstance(kind, StructType):
        return f"STRUCT<{', '.join(f'{quote(f.name)}: {type_ddl(f.dataType)}' for f in kind)}>"
    if isinstance(kind, ArrayType):
        return f"ARRAY<{type_ddl(kind.elementType)}>"
    if isinstance(kind, MapType):
        return f"MAP<{type_ddl(kind.keyType)}, {type_ddl(kind.valueType)}>"
    return str(kind.simpleString())


def type_text(kind: DataType) -> str:
    """A type as Spark's `simpleString` has it, with those names quoted that need it.

    Unlike that it can be read again: ``struct<`a-b`:int>``.
    """
    if isinstance(kind, StructType):
        fields = (f"{_bare(f.name)}:{type_text(f.dataType)}" for f in kind)
        return f"struct<{','.join(fields)}>"
    if isinstance(kind, ArrayType):
        return f"array<{type_text(kind.elementType)}>"
    if isinstance(kind, MapType):
        return f"map<{type_text(kind.keyType)},{type_text(kind.valueType)}>"
    return str(kind.simpleString())


def _bare(name: str) -> str:
    return name if _PLAIN.fullmatch(name) else quote(name)


def nullable_within(schema: StructType) -> StructType:
    """The columns with types whose fields may all be NULL.

    Arrow refuses a NULL struct with a field that may not be, which Spark's aggregates make.
    """
    return StructType([StructField(f.name, _nullable(f.dataType), f.nullable) for f in schema])


def _nullable(kind: DataType) -> DataType:
    if isinstance(kind, StructType):
        return StructType([StructField(f.name, _nullable(f.dataType), True) for f in kind])
    if isinstance(kind, ArrayType):
        return ArrayType(_nullable(kind.elementType), True)
    if isinstance(kind, MapType):
        return MapType(kind.keyType, _nullable(kind.valueType), True)
    return kind


def same_columns(left: StructType, right: StructType) -> bool:
    """Whether names, order and types agree; Spark does not tell names by their case."""

    def told(schema: StructType) -> list[tuple[str, str]]:
        return [(field.name.lower(), type_ddl(field.dataType).lower()) for field in schema]

    return told(left) == told(right)
