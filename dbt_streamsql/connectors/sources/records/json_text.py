"""JSON objects as structs of text, with each number as it was written.

Spark's parser converts a number with a point or an exponent to text through a double. So such
numbers are quoted first, with a mark on both sides that no text can contain, since it is made of
a hash of the record; then unquoted again. Inputs and outputs are SQL expressions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dbt_streamsql.connectors.sources.records.sql import (
    coalesce,
    field,
    struct,
    when,
)
from dbt_streamsql.connectors.sources.records.values import as_texts, is_nested, unfit_message
from dbt_streamsql.plan.algebra.schema import HIDDEN_PREFIX
from dbt_streamsql.quoting import literal, quote
from dbt_streamsql.storage.columns import type_ddl

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

CORRUPT = f"{HIDDEN_PREFIX}corrupt"
ROW, MARK = f"{HIDDEN_PREFIX}row", f"{HIDDEN_PREFIX}mark"
"""The parsed record, and the mark of its numbers."""
_WHOLE = "-?(?:0|[1-9][0-9]*+)"
_EXPONENT = "[eE][+-]?[0-9]++"
_NUMBER = rf"{_WHOLE}(?:\.[0-9]++(?:{_EXPONENT})?+|{_EXPONENT})|-0"
_STRING = r'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_OTHER = rf"{_WHOLE}(?![.eE0-9])(?<!-0)"
_NEXT = rf'\G((?:[^"0-9-]++|{_STRING}|{_OTHER})*+)({_NUMBER})(?=[ \t\r\n]*+[,\]}}])'
"""The text before the next such number, and the number. Possessive: it uses no stack."""
_MAYBE = r"[0-9][.eE]|-0"
_ANY = rf"{_WHOLE}(?:\.[0-9]++)?+(?:{_EXPONENT})?+"
_NEXT_OF_ALL = rf'\G((?:[^"0-9-]++|{_STRING})*+)({_ANY})(?=[ \t\r\n]*+[,\]}}])'
"""The same for all numbers."""


def parse(text: str, kind: DataType, *, all_numbers: bool = False) -> str:
    """A struct: under `ROW` the object, under `CORRUPT` something when a text is not such an
    object, under `MARK` what `plain` needs (NULL: nothing). With `all_numbers`, each number is a
    text that `is_number`; else only those with a point or an exponent.
    """
    number, maybe = (_NEXT_OF_ALL, "[0-9]") if all_numbers else (_NEXT, _MAYBE)
    # Inlined wherever it is used: a lambda around it is slower than computing it three times.
    mark = f"concat('n', md5(CAST({text} AS BINARY)))"
    quoted = f"""concat('$1"', {mark}, '$2', {mark}, '"')"""
    numbers = f"regexp_replace(concat({text}, '}}'), {literal(number)}, {quoted})"
    marked = f"""concat('{{"{MARK}":"', {mark}, '","{ROW}":', {numbers})"""
    return _parsed(f"if({text} RLIKE {literal(maybe)}, {marked}, {_inside(text)})", kind)


def parse_roughly(text: str, kind: DataType) -> str:
    """A shorter `parse`, for text that is only shown: numbers may be written differently."""
    return _parsed(_inside(text), kind)


def plain(text: str, mark: str) -> str:
    """A text from a parsed object, with its numbers as written."""
    inside = f"""replace(replace({text}, concat('"', {mark}), ''), concat({mark}, '"'), '')"""
    return f"if(contains({text}, {mark}), replace({inside}, {mark}, ''), {text})"


def is_number(text: str, mark: str) -> str:
    """Whether a text from an object parsed with `all_numbers` is a number. Never NULL."""
    return f"coalesce(startswith({text}, {mark}), false)"


def plain_texts(given: str, kind: DataType, mark: str) -> str:
    """`plain` for all texts in a value that was parsed as `as_texts(kind)`."""
    from pyspark.sql.types import ArrayType, MapType, StructType, VariantType

    if isinstance(kind, StructType):
        fields = ((f.name, plain_texts(field(given, f.name), f.dataType, mark)) for f in kind)
        return when(f"{given} IS NOT NULL", struct(fields))
    if isinstance(kind, ArrayType):
        return f"transform({given}, x -> {plain_texts('x', kind.elementType, mark)})"
    if isinstance(kind, MapType):
        inside = plain_texts("x", kind.valueType, mark)
        return f"transform_values({given}, (k, x) -> {inside})"
    if isinstance(kind, VariantType):
        return plain(f"to_json({given})", mark)
    return plain(given, mark)


def broken(text: str, parsed: str, types: StructType) -> str:
    """What is wrong with an unparsable text: not JSON, or which column does not fit.

    Only bad records are parsed again for this.
    """
    from pyspark.sql.types import StructType

    found = fields(text)
    reasons = [when(f"{found} IS NULL", "'it is not a JSON object'")]
    for each in types:
        if is_nested(each.dataType):
            alone = parse_roughly(text, as_texts(StructType([each])))
            why = unfit_message(each.name, f"{found}[{literal(each.name)}]", each.dataType)
            reasons.append(when(f"{field(alone, CORRUPT)} IS NOT NULL", why))
    reasons.append("'it is not a JSON object as declared'")
    bad = f"({field(parsed, CORRUPT)} IS NOT NULL OR {field(parsed, ROW)} IS NULL)"
    return when(f"{text} IS NOT NULL AND {bad}", coalesce(reasons))


def fields(text: str) -> str:
    """The fields of an object, as text, parsed roughly; NULL when it is not an object."""
    from pyspark.sql.types import MapType, StringType

    return field(parse_roughly(text, MapType(StringType(), StringType())), ROW)


def _inside(text: str) -> str:
    """Of several objects in a text, Spark's parser takes the first and ignores the rest, whatever
    it is. Inside another object it does not."""
    return f"""concat('{{"{ROW}":', {text}, '}}')"""


def _parsed(whole: str, kind: DataType) -> str:
    shape = f"{quote(MARK)} string, {quote(ROW)} {type_ddl(kind)}, {quote(CORRUPT)} string"
    options = {
        "mode": "PERMISSIVE",
        "columnNameOfCorruptRecord": CORRUPT,
        "allowSingleQuotes": "false",
        "allowNonNumericNumbers": "false",
    }
    given = ", ".join(literal(text) for pair in options.items() for text in pair)
    return f"from_json({whole}, {literal(shape)}, map({given}))"
