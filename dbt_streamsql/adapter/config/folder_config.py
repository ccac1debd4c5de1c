"""A model's config without what its folder sets for models of other kinds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dbt.utils import fqn_search

from dbt_streamsql.adapter.config import (
    layout,
    model_config,
    partial_update,
    sink,
    streaming_table,
)

KEYS: dict[str, frozenset[str]] = {
    "materialized_view": frozenset(model_config.OWN_KEYS),
    "streaming_table": frozenset(streaming_table.OWN_KEYS),
    "partial_update": frozenset({*partial_update.OWN_KEYS, *model_config.OWN_KEYS} - {"plan"}),
    "sink": frozenset(sink.OWN_KEYS),
}
"""By kind, the config keys that dbt does not know."""

_OURS = frozenset().union(*KEYS.values())
_OF_TABLES = frozenset({*layout.NOT_MAINTAINED, "file_format"})
_FRESHNESS = "freshness"
_RESOURCES = {"model": "models", "seed": "seeds", "snapshot": "snapshots"}


def own_config(model: Mapping[str, Any], project: Any) -> dict[str, Any]:
    """A node's config without what `dbt_project.yml` sets for models of other kinds in its folder.

    What the model itself sets, in its `config(…)` or next to its name in a YAML file, stays: it
    can only be a mistake. `project` is dbt's own `RuntimeConfig`.
    """
    config = model["config"]
    own = KEYS.get(config["materialized"], frozenset())
    # Maintained tables take no layout settings of plain tables.
    foreign = (_OURS | (_OF_TABLES if own else frozenset())) - own
    said = model.get("config_call_dict") or {}
    inherited = {
        key
        for level in _levels(model, project)
        for key, value in level.items()
        if key in foreign and key not in said and config.get(key) == value
    }
    own_values = {key: config[key] for key in config if key not in inherited}
    # dbt drops the `freshness` of a model that has no `build_after`.
    written = (model.get("unrendered_config") or {}).get(_FRESHNESS)
    if own and written is not None and own_values.get(_FRESHNESS) is None:
        own_values[_FRESHNESS] = written
    return own_values


def _levels(model: Mapping[str, Any], project: Any) -> Iterator[dict[str, Any]]:
    """What each folder above the model sets, in its own project and in the one that is run."""
    resource = _RESOURCES.get(str(model["resource_type"]))
    package = (project.dependencies or {}).get(model["package_name"])
    for each in filter(None, [project, package if package is not project else None]):
        tree = getattr(each, resource, None) if resource else None
        for level in fqn_search(tree or {}, list(model["fqn"])):
            yield {key.removeprefix("+").strip(): value for key, value in level.items()}
