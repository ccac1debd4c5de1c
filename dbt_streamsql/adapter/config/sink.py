"""How a sink is configured in a dbt project."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dbt.adapters.contracts.connection import AdapterResponse

from dbt_streamsql.adapter.config import model_config
from dbt_streamsql.adapter.config.freshness import freshness_of
from dbt_streamsql.meta.model.freshness import Freshness

if TYPE_CHECKING:
    from dbt_streamsql.runtime.deliver.deliver import Delivered

OWN_KEYS = ("target", "connection", "key", "mode")
_DECLARED = ("connector", "format", "options")


def of_sink(name: str, config: Mapping[str, Any], root: Path) -> dict[str, Any]:
    """`target`, `connection`, `key` and `mode` of `Engine.create_sink`. Relative paths begin at
    `root`, the project's folder. Error: CONFIG_INVALID, listing everything wrong."""
    problems = [
        f"`{key}`: only for materialized views"
        for key in model_config.OWN_KEYS
        if config.get(key) is not None
    ]
    if freshness_of(config, problems) != Freshness():
        problems.append("`freshness`: a sink has no table; set it for the table that it delivers")
    target = config.get("target")
    if not isinstance(target, Mapping):
        problems.append("`target` is missing: {connector: …, options: …}")
        target = {}
    unknown = sorted(set(target) - set(_DECLARED))
    if unknown:
        named = ", ".join(f"`{key}`" for key in unknown)
        problems.append(f"`target` has unknown keys {named} (known: {', '.join(_DECLARED)})")
    if not isinstance(target.get("options") or {}, Mapping):
        problems.append("`target: options` must be a mapping")
        target = {}
    key = config.get("key") or []
    names = [key] if isinstance(key, str) else key
    if not isinstance(names, Sequence) or not all(isinstance(each, str) for each in names):
        problems.append(f"`key` must be a column or a list of columns, not {key!r}")
        names = []
    texts = {}
    for each in ("connection", "mode"):
        texts[each] = config.get(each) or ""
        if not isinstance(texts[each], str):
            problems.append(f"`{each}` must be text, not {texts[each]!r}")
    own = {*OWN_KEYS, *model_config.OWN_KEYS}
    rest = {key: config[key] for key in config if key not in own}
    model_config.of_materialized_view(name, rest, problems, OWN_KEYS)
    options = dict(target.get("options") or {})
    path = options.get("path")
    if isinstance(path, str) and ":" not in path:
        options["path"] = str(root / Path(path).expanduser())
    return {"target": {**target, "options": options}, "key": list(names), **texts}


def response_of(done: Delivered) -> AdapterResponse:
    """The message of dbt's log line: `DELIVERED up to barrier 7`."""
    told = f"DELIVERED up to barrier {done.barrier}" if done.barrier else "DEFINED"
    return AdapterResponse(_message=told, code="SINK")
