"""Rows of a source with its own types, as the records of a stream."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from dbt_streamsql.connectors.sources.records.values import converted, not_of
from dbt_streamsql.connectors.sources.source import (
    AS_READ,
    AT,
    PROBLEM,
    RAW,
    UNSENT,
)
from dbt_streamsql.errors import Place, StreamSqlError
from dbt_streamsql.plan.algebra.schema import HIDDEN_PREFIX
from dbt_streamsql.quoting import quote
from dbt_streamsql.storage.columns import type_text

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

Columns = tuple[tuple[str, str], ...]


def columns_of(found: Columns, declared: Columns, own: Columns, place: Place) -> Columns:
    """The source's columns, with the declared types, and the connector's `own`.

    Errors: CONFIG_INVALID for a declared column that does not exist, STREAM_CHANGED for names
    that Spark cannot distinguish.
    """
    types = {name.lower(): kind for name, kind in declared}
    names = [name.lower() for name, _ in (*found, *own)]
    missing = [name for name, _ in declared if name.lower() not in names]
    if missing:
        raise StreamSqlError(
            "CONFIG_INVALID",
            "the source has no such column",
            given=", ".join(missing),
            allowed=", ".join(name for name, _ in found),
            place=place,
        )
    twice = [name for name in names if names.count(name) > 1 or name.startswith(HIDDEN_PREFIX)]
    if twice:
        raise StreamSqlError(
            "STREAM_CHANGED",
            "the source has column names that clash",
            given=", ".join(sorted(set(twice))),
            allowed="names that differ in more than case, and none of the connector's own: "
            + ", ".join(name for name, _ in own),
            hint="rename the columns, for example in a view of the source's database",
            place=place,
        )
    return tuple((name, types.get(name.lower(), kind)) for name, kind in found) + own


def records(
    frame: DataFrame,
    columns: Columns,
    at: Column,
    place: Place,
    *,
    broken: Column | None = None,
    inexact: Mapping[str, Column] | None = None,
    unsent: tuple[Column, Column] | None = None,
) -> DataFrame:
    """`columns`, cast to their types, and the columns that every record has.

    A value that does not fit its type gives its record a problem, as does `broken` (text, or
    NULL). `frame` may have fewer columns: the rest are NULL. `inexact`: the value of a column, in
    place of a cast. `unsent`: the names of columns whose values an update did not send, and the
    message for it (both NULL in other records); then UNSENT and AS_READ are included. Error:
    CONFIG_INVALID when no value could be cast.
    """
    from pyspark.errors import AnalysisException
    from pyspark.sql import functions as F

    there = {field.name: type_text(field.dataType) for field in frame.schema}
    values: dict[str, Column] = {}
    problems: list[Column] = [] if broken is None else [broken]
    for name, kind in columns:
        given = quote(name) if name in there else "NULL"
        if there.get(name) in (kind, kind.lower()):
            values[name] = F.col(given)
            continue
        own = (inexact or {}).get(name)
        values[name] = F.expr(_converted(given, there.get(name), kind)) if own is None else own
        if name in there:
            why = F.expr(not_of(name, f"CAST({given} AS STRING)", kind))
            problems.append(F.when(F.col(given).isNotNull() & values[name].isNull(), why))
    problem = F.coalesce(*problems) if problems else F.lit(None)
    problem = problem.cast("string")
    text = F.to_json(
        F.struct(*(F.col(quote(name)) for name in there if not name.startswith(HIDDEN_PREFIX))),
        {"ignoreNullFields": "false"},
    )
    wanted = [F.when(problem.isNull(), value).alias(name) for name, value in values.items()]
    plain = [value.alias(name) for name, value in values.items()]
    ends = [text.alias(RAW), at.cast("string").alias(AT)]
    if unsent is None:
        ends += [problem.alias(PROBLEM)]
    else:
        names, why = unsent
        ends += [F.coalesce(problem, why).alias(PROBLEM)]
        ends += [F.when(problem.isNull(), names).alias(UNSENT)]
        ends += [F.when(problem.isNotNull(), F.struct(*plain)).alias(AS_READ)]
    try:
        found = frame.select(*(wanted if problems else plain), *ends)
        _ = found.schema  # Spark Connect analyzes nothing before
    except AnalysisException as error:
        raise StreamSqlError(
            "CONFIG_INVALID",
            "a declared type does not fit its column",
            given=str(error).splitlines()[0],
            allowed=typed_columns(there.items()),
            hint="declare a type that the column can be cast to, or none",
            place=place,
        ) from error
    return found


def _converted(given: str, there: str | None, wanted: str) -> str:
    if there is None:
        return f"try_cast({given} AS {wanted})"
    return converted(given, there, wanted.lower())


def typed_columns(columns: Iterable[Sequence[str]]) -> str:
    """Columns for a message."""
    return ", ".join(f"{name} {kind}" for name, kind in columns)
