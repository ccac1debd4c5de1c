"""A text as a value of a type: the value that the text denotes, or none.

A value that would have to be truncated or rounded does not fit: `12.345` is not a decimal(10,2),
a date with a time of day is not a date. Floating-point numbers are as close as possible, and times
are truncated to microseconds: no type holds more. Inputs and outputs are SQL expressions.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dbt_streamsql.connectors.sources.records import times
from dbt_streamsql.connectors.sources.records.sql import (
    concat,
    field,
    let,
    struct,
    when,
)
from dbt_streamsql.quoting import literal
from dbt_streamsql.storage.columns import type_text

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

_NESTED = ("struct", "array", "map")
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
_FRACTION, _DIGITS = r"\.([0-9]*)", r"^\s*[+-]?([0-9.]+)"
_SHOWN = 100
"""Characters shown of a value that does not fit."""


@dataclass(frozen=True)
class Values:
    """Converts text to values; `timestamp_format` and `date_format` as a source declares them."""

    timestamp_format: str | None = None
    date_format: str | None = None

    def value(self, given: str, kind: DataType) -> str:
        """The value of a text, or of a struct, array or map of texts; NULL if it is invalid."""
        from pyspark.sql.types import ArrayType, MapType, StructType

        if isinstance(kind, StructType):
            fields = ((f.name, self.value(field(given, f.name), f.dataType)) for f in kind)
            return when(f"{given} IS NOT NULL", struct(fields))
        if isinstance(kind, ArrayType):
            return f"transform({given}, x -> {self.value('x', kind.elementType)})"
        if isinstance(kind, MapType):
            values = f"transform(map_values({given}), x -> {self.value('x', kind.valueType)})"
            made = when(_distinct("k"), f"map_from_arrays(k, {values})")
            return let(self._keys(given, kind), "k", made)
        return self.leaf(given, type_text(kind))

    def unfit(self, given: str, kind: DataType) -> str:
        """Whether `value` loses some of the input. Never NULL."""
        from pyspark.sql.types import ArrayType, MapType, StructType

        if isinstance(kind, StructType):
            fields = (self.unfit(field(given, f.name), f.dataType) for f in kind)
            return f"({' OR '.join(fields)})"
        if isinstance(kind, ArrayType):
            inside = f"exists({given}, x -> {self.unfit('x', kind.elementType)})"
            return f"coalesce({inside}, false)"
        if isinstance(kind, MapType):
            inside = f"exists(map_values({given}), x -> {self.unfit('x', kind.valueType)})"
            twice = let(self._keys(given, kind), "k", f"NOT {_distinct('k')}")
            return f"coalesce({twice} OR {inside}, false)"
        if type_text(kind) == "string":
            return "false"
        return f"({given} IS NOT NULL AND {self.value(given, kind)} IS NULL)"

    def leaf(self, text: str, kind: str) -> str:
        """The value of a text; NULL if it is not of the type."""
        if kind == "string":
            return text
        if kind == "binary":
            return f"try_to_binary({text}, 'base64')"
        if kind == "variant":
            return f"try_parse_json({text})"
        if kind == "timestamp":
            return times.timestamp(text, self.timestamp_format)
        if kind == "timestamp_ntz":
            return times.timestamp_ntz(text, self.timestamp_format)
        if kind == "date":
            return times.date(text, self.date_format)
        value = f"try_cast({text} AS {kind})"
        if kind in ("float", "double"):
            return when(f"NOT {_is_infinite(value)} OR {text} RLIKE '(?i)inf'", value)
        scale = _DECIMAL.fullmatch(kind)
        return value if scale is None else when(_has_scale(text, int(scale[2])), value)

    def _keys(self, given: str, kind: DataType) -> str:
        key = kind.keyType  # type: ignore[attr-defined]
        return f"transform(map_keys({given}), x -> {self.value('x', key)})"


def converted(given: str, there: str, wanted: str) -> str:
    """A value of one type converted to another; NULL if it is not the same value."""
    value = f"try_cast({given} AS {wanted})"
    if there == "string":
        # Text as binary is its bytes, as everywhere except in JSON.
        return value if wanted == "binary" else Values().leaf(given, wanted)
    if wanted in ("float", "double"):
        lost = f"{_is_infinite(value)} AND NOT {_is_infinite(f'try_cast({given} AS DOUBLE)')}"
        return when(f"NOT ({lost})", value)
    if _is_number(there) or (there, wanted) in _SHORTER:
        return when(f"try_cast({value} AS {there}) <=> {given}", value)
    return value


_SHORTER = (("timestamp", "date"), ("timestamp_ntz", "date"))
"""Casts that truncate."""


def unfit_message(name: str, given: str, kind: DataType) -> str:
    """What is wrong with a record whose column does not fit."""
    return not_of(name, given, type_text(kind))


def not_of(name: str, given: str, kind: str) -> str:
    """The same by type name."""
    told = f"left(coalesce({given}, 'NULL'), {_SHOWN})"
    return concat(literal(f"column {name}: "), told, literal(f" is not of type {kind}"))


def is_nested(kind: DataType) -> bool:
    return kind.typeName() in _NESTED


def as_texts(types: StructType) -> StructType:
    """The same columns with text in place of all that is not nested, also inside of it."""
    return _texts(types)  # type: ignore[return-value]  # a struct gives a struct


def _texts(kind: DataType) -> DataType:
    from pyspark.sql.types import (
        ArrayType,
        MapType,
        StringType,
        StructField,
        StructType,
        VariantType,
    )

    if isinstance(kind, StructType):
        return StructType([StructField(f.name, _texts(f.dataType)) for f in kind])
    if isinstance(kind, ArrayType):
        return ArrayType(_texts(kind.elementType))
    if isinstance(kind, MapType):
        return MapType(StringType(), _texts(kind.valueType))
    return kind if isinstance(kind, VariantType) else StringType()


def _distinct(keys: str) -> str:
    twice = f"size(array_distinct({keys})) < size({keys})"
    return f"(NOT exists({keys}, x -> x IS NULL) AND NOT {twice})"


def _has_scale(text: str, scale: int) -> str:
    """Whether a number has at most `scale` digits after its point, not counting zeros."""
    plain = literal(rf"^\s*[+-]?\d*\.?\d{{0,{scale}}}0*\s*$")
    fraction = f"length(regexp_extract({text}, {literal(_FRACTION)}, 1))"
    digits = f"replace(regexp_extract({text}, {literal(_DIGITS)}, 1), '.', '')"
    exponent = f"try_cast(regexp_extract({text}, '[eE]([+-]?[0-9]+)', 1) AS BIGINT)"
    zeros = f"(length({digits}) - length(trim(TRAILING '0' FROM {digits})))"
    # Only numbers with an exponent count here; `plain` decides on all others.
    counted = f"({fraction} - {zeros} - {exponent} <= {scale} OR length({digits}) = {zeros})"
    return f"({text} RLIKE {plain} OR coalesce({counted}, false))"


def _is_infinite(value: str) -> str:
    return f"coalesce(abs({value}) = double('infinity'), false)"


def _is_number(kind: str) -> bool:
    return kind.startswith("decimal") or kind in (
        "tinyint",
        "smallint",
        "int",
        "bigint",
        "float",
        "double",
    )
