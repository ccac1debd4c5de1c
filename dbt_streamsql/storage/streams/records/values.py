"""One text as a value of a type: the value that the text says, or none.

A value that would have to be cut or rounded does not fit: `12.345` is no decimal(10,2), a date
with a time of day is no date. Floating point numbers are as near as they come, and times are cut
to microseconds: no type holds more.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dbt_streamsql.storage.columns import type_text
from dbt_streamsql.storage.streams.records import times

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType, StructType

_NESTED = ("struct", "array", "map")
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
_SHOWN = 100
"""Characters of a value that does not fit."""


@dataclass(frozen=True)
class Values:
    """Makes values of texts; `timestamp_format` and `date_format` as a source declares them."""

    timestamp_format: str | None = None
    date_format: str | None = None

    def value(self, given: Column, kind: DataType) -> Column:
        """The value of a text, or of a struct, array or map of texts; NULL where it is none."""
        from pyspark.sql import functions as F  # noqa: N812 - its usual name
        from pyspark.sql.types import ArrayType, MapType, StructType

        if isinstance(kind, StructType):
            fields = (self.value(given.getField(f.name), f.dataType).alias(f.name) for f in kind)
            return F.when(given.isNotNull(), F.struct(*fields))
        if isinstance(kind, ArrayType):
            element = kind.elementType
            return F.transform(given, lambda each: self.value(each, element))
        if isinstance(kind, MapType):
            keys, of = self._keys(given, kind), kind.valueType
            found = F.transform(F.map_values(given), lambda each: self.value(each, of))
            return F.when(_distinct(keys), F.map_from_arrays(keys, found))
        return self.leaf(given, type_text(kind))

    def unfit(self, given: Column, kind: DataType) -> Column:
        """Whether `value` does not give all that is there. Never NULL."""
        from pyspark.sql import functions as F  # noqa: N812 - its usual name
        from pyspark.sql.types import ArrayType, MapType, StructType

        if isinstance(kind, StructType):
            found = F.lit(False)
            for each in kind:
                found = found | self.unfit(given.getField(each.name), each.dataType)
            return found
        if isinstance(kind, ArrayType):
            element = kind.elementType
            inside = F.exists(given, lambda each: self.unfit(each, element))
            return F.coalesce(inside, F.lit(False))
        if isinstance(kind, MapType):
            of = kind.valueType
            inside = F.exists(F.map_values(given), lambda each: self.unfit(each, of))
            return F.coalesce(~_distinct(self._keys(given, kind)) | inside, F.lit(False))
        if type_text(kind) == "string":
            return F.lit(False)
        return given.isNotNull() & self.value(given, kind).isNull()

    def leaf(self, text: Column, kind: str) -> Column:
        """The value of a text; NULL where it is none of the type."""
        from pyspark.sql import functions as F  # noqa: N812 - its usual name

        if kind == "string":
            return text
        if kind == "binary":
            return F.try_to_binary(text, F.lit("base64"))
        if kind == "variant":
            return F.try_parse_json(text)
        if kind == "timestamp":
            return times.timestamp(text, self.timestamp_format)
        if kind == "timestamp_ntz":
            return times.timestamp_ntz(text, self.timestamp_format)
        if kind == "date":
            return times.date(text, self.date_format)
        value = text.try_cast(kind)
        if kind in ("float", "double"):
            return F.when(~_is_infinite(value) | text.rlike("(?i)inf"), value)
        scale = _DECIMAL.fullmatch(kind)
        return value if scale is None else F.when(_has_scale(text, int(scale[2])), value)

    def _keys(self, given: Column, kind: DataType) -> Column:
        from pyspark.sql import functions as F  # noqa: N812 - its usual name

        key = kind.keyType  # type: ignore[attr-defined]
        return F.transform(F.map_keys(given), lambda each: self.value(each, key))


def converted(given: Column, there: str, wanted: str) -> Column:
    """A value of one type as one of another; NULL where it is not the same value."""
    from pyspark.sql import functions as F  # noqa: N812 - its usual name

    if there == "string":
        # A binary of a text is its bytes, as everywhere but in JSON.
        return given.try_cast(wanted) if wanted == "binary" else Values().leaf(given, wanted)
    value = given.try_cast(wanted)
    if wanted in ("float", "double"):
        lost = _is_infinite(value) & ~_is_infinite(given.try_cast("double"))
        return F.when(~lost, value)
    if _is_number(there) or (there, wanted) in _SHORTER:
        return F.when(value.try_cast(there).eqNullSafe(given), value)
    return value


_SHORTER = (("timestamp", "date"), ("timestamp_ntz", "date"))
"""What a cast cuts."""


def unfit(name: str, given: Column, kind: DataType) -> Column:
    """What is wrong with a record whose column does not fit."""
    return not_of(name, given, type_text(kind))


def not_of(name: str, given: Column, kind: str) -> Column:
    """The same by the name of a type."""
    from pyspark.sql import functions as F  # noqa: N812 - its usual name

    told = F.left(F.coalesce(given, F.lit("NULL")), F.lit(_SHOWN))
    return F.concat(F.lit(f"column {name}: "), told, F.lit(f" is not of type {kind}"))


def is_nested(kind: DataType) -> bool:
    return kind.typeName() in _NESTED


def as_texts(types: StructType) -> StructType:
    """The same columns with texts in the place of all that is not nested, inside of it too."""
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


def _distinct(keys: Column) -> Column:
    from pyspark.sql import functions as F  # noqa: N812 - its usual name

    twice = F.size(F.array_distinct(keys)) < F.size(keys)
    return ~F.exists(keys, lambda each: each.isNull()) & ~twice


def _has_scale(text: Column, scale: int) -> Column:
    """Whether a number has no more digits after its point than `scale`, zeros apart."""
    from pyspark.sql import functions as F  # noqa: N812 - its usual name

    plain = text.rlike(rf"^\s*[+-]?\d*\.?\d{{0,{scale}}}0*\s*$")
    fraction = F.length(F.regexp_extract(text, r"\.(\d*)", 1))
    digits = F.regexp_replace(F.regexp_extract(text, r"^\s*[+-]?([\d.]+)", 1), r"\.", "")
    zeros = F.length(digits) - F.length(F.rtrim(digits, F.lit("0")))
    exponent = F.regexp_extract(text, r"[eE]([+-]?\d+)", 1).try_cast("bigint")
    # In all of them is one exponent, since nothing else was plain.
    counted = (fraction - zeros - exponent <= scale) | (F.length(digits) == zeros)
    return plain | F.coalesce(counted, F.lit(False))


def _is_infinite(value: Column) -> Column:
    from pyspark.sql import functions as F  # noqa: N812 - its usual name

    return F.coalesce(F.abs(value) == F.lit(float("inf")), F.lit(False))


def _is_number(kind: str) -> bool:
    return kind.startswith("decimal") or kind in (
        "tinyint",
        "smallint",
        "int",
        "bigint",
        "float",
        "double",
    )
