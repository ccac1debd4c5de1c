"""The freshness that a model promises: its config `freshness`, or `meta.streamsql.freshness`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dbt_streamsql.meta.model.freshness import Freshness

_SECONDS = {"minute": 60, "hour": 3600, "day": 86400}
_LIMITS = ("warn_after", "error_after")
_OF_DBT = "build_after"
"""Says when dbt's own scheduler builds a model; it is no promise."""

_EXAMPLE = "{warn_after: {count: 30, period: minute}, error_after: {count: 2, period: hour}}"


def freshness_of(config: Mapping[str, Any], problems: list[str]) -> Freshness:
    """The limits from a model's config; what is wrong with them is added to `problems`."""
    declared = (config.get("meta") or {}).get("streamsql")
    inner = declared.get("freshness") if isinstance(declared, Mapping) else None
    given = inner if inner is not None else config.get("freshness")
    if given is None:
        return Freshness()
    if not isinstance(given, Mapping):
        problems.append(f"`freshness` must be like {_EXAMPLE}, not {given!r}")
        return Freshness()
    found: dict[str, float] = {}
    for key, limit in given.items():
        if key == _OF_DBT or limit is None:
            continue
        if key not in _LIMITS:
            problems.append(f"`freshness` has the unknown key `{key}`; it is like {_EXAMPLE}")
        elif (seconds := _seconds(limit)) is None:
            problems.append(
                f"`freshness: {key}` must be like {{count: 30, period: minute}}, with a positive "
                f"count and one of {', '.join(_SECONDS)}, not {limit!r}"
            )
        else:
            found[key] = seconds
    freshness = Freshness(**found)
    warn, error = freshness.warn_after, freshness.error_after
    if warn is not None and error is not None and warn > error:
        problems.append("`freshness: warn_after` must not be longer than `error_after`")
    return freshness


def _seconds(limit: Any) -> float | None:
    if not isinstance(limit, Mapping) or set(limit) != {"count", "period"}:
        return None
    count, period = limit["count"], limit["period"]
    if type(count) is not int or count < 1 or period not in _SECONDS:
        return None
    return float(count * _SECONDS[period])
