"""The errors that a query raises when a branch of a wide table violates its key."""

from __future__ import annotations

from collections.abc import Sequence

from dbt_streamsql.quoting import literal

SIGN = "partial_update_key"
"""The prefix of the message of such an error: `partial_update_key|what|branch|key`."""

SEVERAL, NO_KEY = "several", "null"
"""A branch has several rows for one key, or one with a NULL key."""


def several_sql(branch: str, keys: Sequence[str]) -> str:
    """Raises: the branch has several rows for the key, whose values are SQL."""
    shown = ", ', ', ".join(f"coalesce(CAST({key} AS STRING), 'NULL')" for key in keys)
    return f"raise_error(concat({literal(f'{SIGN}|{SEVERAL}|{branch}|')}, {shown}))"


def no_key_sql(branch: str, key: str) -> str:
    """Raises: the branch has a row with NULL in the key column."""
    return f"raise_error({literal(f'{SIGN}|{NO_KEY}|{branch}|{key}')})"
