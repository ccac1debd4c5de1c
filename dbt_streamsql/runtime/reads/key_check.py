"""Whether the declared keys of a view's inputs are true."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from pyspark.sql import SparkSession

from dbt_streamsql.errors import Place, StreamSqlError
from dbt_streamsql.plan.definition.table_key import TableKey
from dbt_streamsql.quoting import quote

_SHOWN = 3
"""Values that an error shows of each key."""


def check(
    spark: SparkSession, keys: Iterable[TableKey], rows: Callable[[str], str], view: str
) -> None:
    """Check keys over `rows`: the rows of a table by its name. Error: KEY_UNTRUE, naming each key
    that does not hold, with some of its values."""
    problems = []
    for key in keys:
        parent, unique = (key.references, key.to) if key.references else (key.table, key.column)
        name = quote(unique)
        problems += _found(
            spark,
            f"SELECT {name} FROM {rows(parent)} WHERE {name} IS NOT NULL "
            f"GROUP BY {name} HAVING count(*) > 1",
            f"{parent}.{unique} is not unique",
        )
        if key.references:
            column = quote(key.column)
            problems += _found(
                spark,
                f"SELECT DISTINCT c.{column} FROM {rows(key.table)} c "
                f"LEFT ANTI JOIN {rows(parent)} p ON c.{column} = p.{name} "
                f"WHERE c.{column} IS NOT NULL",
                f"{key}, which lacks values",
            )
    if problems:
        raise StreamSqlError(
            "KEY_UNTRUE",
            "a key that is declared of an input does not hold, so rows of the view may be wrong",
            given="; ".join(dict.fromkeys(problems)),
            hint="correct the input, or remove the key from `meta.streamsql.keys`; then rebuild "
            "the view with `dbt run --full-refresh`",
            place=Place(view),
        )


def _found(spark: SparkSession, sql: str, problem: str) -> list[str]:
    values = [str(row[0]) for row in spark.sql(f"{sql} LIMIT {_SHOWN}").collect()]
    return [f"{problem}: {', '.join(values)}"] if values else []
