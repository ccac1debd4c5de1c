"""Seeds: the rows of a CSV file as a typed DataFrame. No value is ever part of a SQL text.

A snapshot that a seed has written holds a fingerprint of all that the seed says. While it is the
table's current one, the table need not be written again, and its readers have no changes to read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from datetime import date, datetime
from decimal import Decimal
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.quoting import quote

if TYPE_CHECKING:
    import agate
    from pyspark.sql import DataFrame, SparkSession

    from dbt_streamsql.storage.staged_table import TableSpec

SETTINGS = ("spark.sql.session.timeZone", "spark.sql.timestampType", "spark.sql.ansi.enabled")
"""Those of Spark that decide what a text becomes."""
FINGERPRINT = "streamsql.seed"
"""The property of a snapshot that a seed has written."""
_PLAIN = re.compile(r"\w+")


def check_columns(names: Sequence[str], quote_columns: bool | None) -> None:
    """Refuse a column that needs quotes where the seed says that none does.

    It reveals a wrong `delimiter`: the whole header becomes one name. Error: IDENTIFIER_INVALID.
    """
    found = [name for name in names if quote_columns is False and not _PLAIN.fullmatch(name)]
    if found:
        raise StreamSqlError(
            "IDENTIFIER_INVALID",
            "a column name of the seed needs quotes",
            given=", ".join(map(repr, found)),
            allowed="letters, digits and `_` while `quote_columns` is false",
            hint="check the seed's `delimiter` and header, or set `quote_columns: true`",
        )


def to_frame(spark: SparkSession, table: agate.Table, types: list[str]) -> DataFrame:
    """The table with `types` (Spark's names, one per column).

    Everything is sent as text and cast by Spark, so that a value that does not fit its type is
    Spark's own error (ANSI mode) and not a silent NULL.
    """
    import pyarrow as pa
    from pyspark.sql import functions as F

    from dbt_streamsql.storage.arrow_rows import arrow_frame

    names = list(table.column_names)
    # Positions as names: a header may contain dots, backticks or anything else.
    columns = {
        f"c{position}": pa.array([_text(value) for value in table.columns[position]], pa.string())
        for position in range(len(names))
    }
    frame = arrow_frame(spark, pa.table(columns))
    return frame.select(
        *(
            F.col(quote(f"c{position}")).cast(types[position]).alias(name)
            for position, name in enumerate(names)
        )
    )


def fingerprint(table: agate.Table, types: Sequence[str], settings: Sequence[Any]) -> str:
    """Equal for the same rows and types under the same `settings` (values of JSON)."""
    rows = [[_text(value) for value in row] for row in table.rows]
    found = [list(table.column_names), list(types), rows, list(settings)]
    return sha256(json.dumps(found, sort_keys=True).encode()).hexdigest()


def is_loaded(spark: SparkSession, spec: TableSpec, wanted: str) -> bool:
    """Whether the table's rows, columns and properties are those that a seed of this fingerprint
    wrote."""
    from dbt_streamsql.storage.iceberg import metadata

    found = metadata.load(spark, spec.name)
    current = found.last_change() if found is not None else None
    if found is None or current is None or current.summary.get(FINGERPRINT) != wanted:
        return False
    if any(found.properties.get(key, value) != value for key, value in spec.properties.items()):
        return False
    then, now = (found.schemas.get(at) for at in (current.schema_id or 0, found.schema_id))
    return metadata.shape(then) == metadata.shape(now)


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, (date, datetime)):
        return value.isoformat()
    return str(value)
