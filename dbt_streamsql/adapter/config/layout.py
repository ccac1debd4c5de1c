"""What a config says about the row layout of a table, and which kinds do not accept it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from dbt_streamsql.errors import StreamSqlError

_GRANULARITIES = {"hour": "hours", "day": "days", "month": "months", "year": "years"}
_MAPPED = ("field", "data_type", "granularity")
_FORMS = "a column, a transform such as `days(ts)` or `bucket(16, id)`, a list of these, or a "
_FORMS += "mapping with `field`, `data_type` and `granularity` (hour, day, month or year)"

_LAYOUT = "the engine lays out maintained tables by their keys"
_STRATEGY = "only for `incremental` models; a maintained table applies its changes by itself"

NOT_MAINTAINED: dict[str, str] = {
    "partition_by": _LAYOUT,
    "clustered_by": _LAYOUT,
    "buckets": _LAYOUT,
    "unique_key": _STRATEGY,
    "incremental_strategy": _STRATEGY,
    "incremental_predicates": _STRATEGY,
    "predicates": _STRATEGY,
    "merge_update_columns": _STRATEGY,
    "merge_exclude_columns": _STRATEGY,
    "batch_size": _STRATEGY,
    "begin": _STRATEGY,
    "concurrent_batches": _STRATEGY,
}
"""Config keys of plain tables that do not apply to maintained tables, and why."""


def partition_fields(value: object) -> tuple[str, ...]:
    """The items of `partition_by`: columns or transforms, in order. Error: CONFIG_INVALID.

    Packages for other warehouses pass a mapping.

    >>> partition_fields({"field": "at", "data_type": "timestamp", "granularity": "day"})
    ('days(at)',)
    """
    if value is None:
        return ()
    if isinstance(value, str):
        return (value,)
    if isinstance(value, Mapping):
        return (_mapped(value),)
    if isinstance(value, Iterable):
        return tuple(text for item in value for text in partition_fields(item))
    raise _refused(value)


def _mapped(value: Mapping[str, Any]) -> str:
    granularity = str(value.get("granularity") or "day").lower()
    kind = str(value.get("data_type") or "date").lower()
    field = value.get("field")
    known = set(value) <= set(_MAPPED) and granularity in _GRANULARITIES
    if not known or not isinstance(field, str) or kind.startswith("int"):
        raise _refused(value)
    return f"{_GRANULARITIES[granularity]}({field})"


def _refused(value: object) -> StreamSqlError:
    return StreamSqlError(
        "CONFIG_INVALID",
        "invalid `partition_by`",
        given=repr(value),
        allowed=_FORMS,
        hint="for integer ranges, use `truncate(100, id)` or `bucket(16, id)`",
    )


def unmaintained(config: Mapping[str, Any]) -> list[str]:
    """What is wrong with the layout in the config of a maintained table."""
    wrong = [
        f"`{key}`: {why}"
        for key, why in NOT_MAINTAINED.items()
        if config.get(key) not in (None, [], "")
    ]
    form = config.get("file_format")
    if form is not None and str(form).lower() != "iceberg":
        wrong.append(f"`file_format: {form}`: a maintained table is always an Iceberg table")
    return wrong
