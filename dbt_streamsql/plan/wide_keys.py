"""What a query raises when a branch of a wide table does not keep to its key."""

from __future__ import annotations

from collections.abc import Sequence

from dbt_streamsql.quoting import literal

SIGN = "partial_update_key"
"""How the message of such an error begins: `partial_update_key|what|branch|key`."""

SEVERAL, NO_KEY = "several", "null"
"""A branch has several rows of one key, or one without a value in its key."""


def several_sql(branch: str, keys: Sequence[str]) -> str:
    """Raises: the branch has several rows of the key, whose values are SQL."""
    shown = ", ', ', ".join(f"coalesce(CAST({key} AS STRING), 'NULL')" for key in keys)
    return f"raise_error(concat({literal(f'{SIGN}|{SEVERAL}|{branch}|')}, {shown}))"


def no_key_sql(branch: str, key: str) -> str:
    """Raises: the branch has a row without a value in the key column."""
    return f"raise_error({literal(f'{SIGN}|{NO_KEY}|{branch}|{key}')})"
