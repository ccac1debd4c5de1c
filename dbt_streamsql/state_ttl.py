"""`state_ttl`, as in a config: one duration, or several by operator, input or id.

state_ttl: 1 day
state_ttl: {default: 7 days, joins: {orders: 3 days, shipments: 1 day}, by_id: {4: [1 h, 0]}}
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dbt_streamsql.compiler.parsing.ttl_hints import ttl_hints
from dbt_streamsql.durations import seconds_of
from dbt_streamsql.errors import Place, StreamSqlError
from dbt_streamsql.plan.state import KINDS, StateTtl

_HINTS = "hints"
"""The key for the hints of the query in a stored definition."""
_KEYS = (*KINDS, "default", "by_id", _HINTS)
_ALLOWED = (
    "a duration (0: forever), or a mapping of `default`, "
    f"{', '.join(f'`{kind}`' for kind in KINDS)}, `by_id`; `joins` may also be a mapping of inputs"
)


def state_ttl_of(value: object, sql: str, place: Place) -> StateTtl | None:
    """The TTLs from a config and from the hints of a query; None when all state is kept forever.

    Error: CONFIG_INVALID, listing all mistakes.
    """
    wrong: list[str] = []
    found = StateTtl(hints=_each(ttl_hints(sql), "hint STATE_TTL", wrong))
    if isinstance(value, Mapping):
        found = _of_mapping(value, found, wrong)
    elif value is not None:
        found = StateTtl(default=_time(value, "state_ttl", wrong), hints=found.hints)
    if wrong:
        raise StreamSqlError(
            "CONFIG_INVALID",
            "invalid `state_ttl`",
            given="; ".join(wrong),
            allowed=_ALLOWED,
            hint="durations are text such as 30 seconds, 1h 30m, 7 days",
            place=place,
        )
    return found if found != StateTtl() else None


def _of_mapping(value: Mapping[Any, Any], found: StateTtl, wrong: list[str]) -> StateTtl:
    wrong += [f"unknown key `{key}`" for key in value if key not in _KEYS]
    hints = found.hints or _each(value.get(_HINTS, {}), "hints", wrong)
    kinds: dict[str, int] = {}
    inputs: dict[str, int] = {}
    for kind in KINDS:
        said = value.get(kind)
        if kind == "joins" and isinstance(said, Mapping):
            inputs = _each(said, "joins", wrong)
        elif said is not None:
            kinds[kind] = _time(said, kind, wrong)
    default = _time(value.get("default", 0), "default", wrong)
    ids = _ids(value.get("by_id", {}), wrong)
    return StateTtl(default, kinds, inputs, hints, ids)


def _ids(said: object, wrong: list[str]) -> dict[tuple[int, int], int]:
    """`{7: 1 day}` is input 0 of node 7, `{7: [1 day, 1 h]}` its inputs in order."""
    if not isinstance(said, Mapping):
        wrong.append(f"by_id: {said!r} is not a mapping of ids")
        return {}
    found = {}
    for node, each in said.items():
        if isinstance(each, Mapping):
            parts = each.items()
        else:
            parts = dict(enumerate(each if isinstance(each, (list, tuple)) else [each])).items()
        for index, time in parts:
            if not str(node).isdigit() or not str(index).isdigit():
                wrong.append(f"by_id: {node}: {index} are not numbers")
                continue
            found[int(node), int(index)] = _time(time, f"by_id: {node}", wrong)
    return found


def _each(said: Mapping[Any, Any], key: str, wrong: list[str]) -> dict[str, int]:
    return {str(name): _time(time, f"{key}: {name}", wrong) for name, time in said.items()}


def _time(value: object, key: str, wrong: list[str]) -> int:
    try:
        return round(seconds_of(value, key) * 1000)
    except StreamSqlError as error:
        wrong.append(f"{error.message}: {error.given}")
        return 0


def as_data(ttl: StateTtl | None) -> dict[str, Any]:
    """The form stored in a definition, as `state_ttl_of` reads it ({}: nothing was set)."""
    if ttl is None:
        return {}
    found: dict[str, Any] = {"default": ttl.default / 1000, **_seconds(ttl.kinds)}
    found["joins"] = _seconds(ttl.inputs) or found.get("joins")
    by_id: dict[str, dict[str, float]] = {}
    for (node, index), time in ttl.ids.items():
        by_id.setdefault(str(node), {})[str(index)] = time / 1000
    found |= {"by_id": by_id, _HINTS: _seconds(ttl.hints)}
    return {key: value for key, value in found.items() if value not in (None, {})}


def _seconds(said: Mapping[str, int]) -> dict[str, float]:
    return {name: time / 1000 for name, time in said.items()}
