"""JSON objects as structs of texts, in which each number is as it was written.

Spark's parser makes a text of a number that has a point or an exponent by way of a double. So such
numbers are put into quotes first, with a mark on both sides that no text can have, since it is
made of a hash of the record; and taken out of them again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dbt_streamsql.plan.schema import HIDDEN_PREFIX
from dbt_streamsql.storage.streams.records.values import as_texts, is_nested, unfit

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType, StructType

CORRUPT = f"{HIDDEN_PREFIX}corrupt"
ROW, MARK = f"{HIDDEN_PREFIX}row", f"{HIDDEN_PREFIX}mark"
"""What a record was parsed to, and the mark of its numbers."""
_WHOLE = "-?(?:0|[1-9][0-9]*+)"
_EXPONENT = "[eE][+-]?[0-9]++"
_NUMBER = rf"{_WHOLE}(?:\.[0-9]++(?:{_EXPONENT})?+|{_EXPONENT})|-0"
_STRING = r'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_OTHER = rf"{_WHOLE}(?![.eE0-9])(?<!-0)"
_NEXT = rf'\G((?:[^"0-9-]++|{_STRING}|{_OTHER})*+)({_NUMBER})(?=[ \t\r\n]*+[,\]}}])'
"""What comes before the next such number, and the number. Possessive: it takes no stack."""
_MAYBE = r"[0-9][.eE]|-0"
_ANY = rf"{_WHOLE}(?:\.[0-9]++)?+(?:{_EXPONENT})?+"
_NEXT_OF_ALL = rf'\G((?:[^"0-9-]++|{_STRING})*+)({_ANY})(?=[ \t\r\n]*+[,\]}}])'
"""The same for all numbers."""


def parse(text: Column, kind: DataType, *, all_numbers: bool = False) -> Column:
    """A struct: under `ROW` the object, under `CORRUPT` something when a text is no such object,
    under `MARK` what `plain` needs to know (NULL: nothing). With `all_numbers`, each number is a
    text that `is_number`; else only those with a point or an exponent.
    """
    from pyspark.sql import functions as F  # noqa: N812 - its usual name

    number, maybe = (_NEXT_OF_ALL, "[0-9]") if all_numbers else (_NEXT, _MAYBE)
    mark = F.concat(F.lit("n"), F.md5(text.cast("binary")))
    quoted = F.concat(F.lit('$1"'), mark, F.lit("$2"), mark, F.lit('"'))
    marked = F.concat(
        F.lit(f'{{"{MARK}":"'),
        mark,
        F.lit(f'","{ROW}":'),
        F.regexp_replace(F.concat(text, F.lit("}")), F.lit(number), quoted),
    )
    return _parsed(F.when(text.rlike(maybe), marked).otherwise(_inside(text)), kind)


def parse_roughly(text: Column, kind: DataType) -> Column:
    """The same in short, for what is only to be shown: numbers may be written otherwise."""
    return _parsed(_inside(text), kind)


def plain(text: Column, mark: Column) -> Column:
    """A text out of a parsed object, its numbers as they were written."""
    from pyspark.sql import functions as F  # noqa: N812 - its usual name

    quote, nothing = F.lit('"'), F.lit("")
    inside = F.replace(text, F.concat(quote, mark), nothing)
    inside = F.replace(inside, F.concat(mark, quote), nothing)
    return F.when(F.contains(text, mark), F.replace(inside, mark, nothing)).otherwise(text)


def is_number(text: Column, mark: Column) -> Column:
    """Whether a text out of an object that was parsed with `all_numbers` is one. Never NULL."""
    from pyspark.sql import functions as F  # noqa: N812 - its usual name

    return F.coalesce(F.startswith(text, mark), F.lit(False))


def plain_texts(given: Column, kind: DataType, mark: Column) -> Column:
    """The same of all texts in a value that was parsed as `as_texts(kind)`."""
    from pyspark.sql import functions as F  # noqa: N812 - its usual name
    from pyspark.sql.types import ArrayType, MapType, StructType, VariantType

    if isinstance(kind, StructType):
        fields = (
            plain_texts(given.getField(f.name), f.dataType, mark).alias(f.name) for f in kind
        )
        return F.when(given.isNotNull(), F.struct(*fields))
    if isinstance(kind, ArrayType):
        element = kind.elementType
        return F.transform(given, lambda each: plain_texts(each, element, mark))
    if isinstance(kind, MapType):
        of = kind.valueType
        return F.transform_values(given, lambda _, each: plain_texts(each, of, mark))
    if isinstance(kind, VariantType):
        return plain(F.to_json(given), mark)
    return plain(given, mark)


def broken(text: Column, parsed: Column, types: StructType) -> Column:
    """What is wrong with a text that could not be parsed: no JSON, or which column does not fit.

    Only bad records are parsed again for it.
    """
    from pyspark.sql import functions as F  # noqa: N812 - its usual name
    from pyspark.sql.types import StructType

    found = fields(text)
    reasons: list[Column] = [F.when(found.isNull(), F.lit("it is not a JSON object"))]
    for each in types:
        if is_nested(each.dataType):
            alone = parse_roughly(text, as_texts(StructType([each]))).getField(CORRUPT)
            why = unfit(each.name, found.getItem(each.name), each.dataType)
            reasons.append(F.when(alone.isNotNull(), why))
    reasons.append(F.lit("it is not a JSON object as declared"))
    bad = parsed.getField(CORRUPT).isNotNull() | parsed.getField(ROW).isNull()
    return F.when(text.isNotNull() & bad, F.coalesce(*reasons))


def fields(text: Column) -> Column:
    """The fields of an object, as texts, parsed roughly; NULL when it is none."""
    from pyspark.sql.types import MapType, StringType

    return parse_roughly(text, MapType(StringType(), StringType())).getField(ROW)


def _inside(text: Column) -> Column:
    """Spark's parser takes the first of several objects in a text and leaves the rest, whatever
    that is. Inside of another object it does not."""
    from pyspark.sql import functions as F  # noqa: N812 - its usual name

    return F.concat(F.lit(f'{{"{ROW}":'), text, F.lit("}"))


def _parsed(whole: Column, kind: DataType) -> Column:
    from pyspark.sql import functions as F  # noqa: N812 - its usual name
    from pyspark.sql.types import StringType, StructField, StructType

    options = {
        "mode": "PERMISSIVE",
        "columnNameOfCorruptRecord": CORRUPT,
        "allowSingleQuotes": "false",
        "allowNonNumericNumbers": "false",
    }
    string = StringType()
    names = [StructField(MARK, string), StructField(ROW, kind), StructField(CORRUPT, string)]
    return F.from_json(whole, StructType(names), options)
