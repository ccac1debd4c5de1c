"""The tables and views of a schema, as a catalog lists them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any


def listed(query: Callable[[str], Sequence[Any]], where: str) -> tuple[list[str], list[str]]:
    """The names of the tables and of the views in a schema, which `where` names in SQL.

    `query` runs a statement and returns its rows; its errors are passed on.
    """
    tables = query(f"SHOW TABLES IN {where}")
    try:
        # Iceberg lists views separately.
        views = query(f"SHOW VIEWS IN {where}")
    except Exception as error:
        # The catalog of another database.
        if "MISSING_CATALOG_ABILITY.VIEWS" not in str(error):
            raise
        views = []
    # Spark lists temporary views with every schema.
    named = [row[1] for row in views if row[0]]
    apart = set(named)
    return [row[1] for row in tables if row[0] and row[1] not in apart], named
