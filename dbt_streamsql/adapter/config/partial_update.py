"""How a wide table and its branches are configured in a dbt project."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dbt_streamsql.adapter.common.relation import StreamSqlRelation
from dbt_streamsql.adapter.config import model_config
from dbt_streamsql.errors import Place, StreamSqlError
from dbt_streamsql.quoting import column

OWN_KEYS = ("key", "merge", "sequence_by", "precedence", "row_lifetime", "reuse_sink")
"""Config keys of a wide table that dbt does not know."""

_LISTS = ("key", "precedence")
Nodes = Iterable[Mapping[str, Any]]
"""The models of the project, as nodes of dbt's graph."""


def of_partial_update(
    name: str, config: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The branches' rules, and the options of any view, for `Engine.create_partial_update`.

    Error: CONFIG_INVALID, listing everything wrong.
    """
    problems: list[str] = []
    options: dict[str, Any] = {}
    for key in _LISTS:
        value = config.get(key)
        names = [value] if isinstance(value, str) else value or []
        if not isinstance(names, Sequence) or not all(isinstance(each, str) for each in names):
            problems.append(f"`{key}` must be a name or a list of names, not {value!r}")
            names = []
        options[key] = list(names)
    if not config.get("key"):
        problems.append("`key` is missing: the columns that identify a row")
    merge = config.get("merge")
    if not _is_texts(merge or {}):
        problems.append(f"`merge` must give a function for each column, not {merge!r}")
    options["merge"] = merge
    sequence = config.get("sequence_by")
    if isinstance(sequence, Mapping):
        options["sequence_by"] = {
            str(key): [names] if isinstance(names, str) else list(names or ())
            for key, names in sequence.items()
        }
    else:
        options["sequence_by"] = sequence
        if not isinstance(sequence, str | None):
            problems.append(
                "`sequence_by` must be a column, or map columns to lists of columns, "
                f"not {sequence!r}"
            )
    lifetime = config.get("row_lifetime") or "any"
    if not isinstance(lifetime, str):
        problems.append(f"`row_lifetime` must be text, not {lifetime!r}")
    reuse = config.get("reuse_sink")
    if reuse not in (None, True, False):
        problems.append(f"`reuse_sink` must be true or false, not {reuse!r}")
    options |= {"row_lifetime": lifetime, "reuse_sink": reuse is not False}
    if config.get("plan") is not None:
        problems.append("`plan` is only for materialized views: wide tables never expire state")
    rest = {key: config[key] for key in config if key not in OWN_KEYS}
    known = (*OWN_KEYS, *model_config.OWN_KEYS)
    return options, model_config.of_materialized_view(name, rest, problems, known)


def branch_statement(
    this: StreamSqlRelation,
    branch: StreamSqlRelation,
    columns: Sequence[str],
    key: Sequence[str],
    own_key: Sequence[str],
) -> str:
    """`INSERT INTO this (columns) SELECT … FROM branch`; `own_key` are the key columns there."""
    names = [*key, *columns]
    values = [*(own_key or key), *columns]
    return (
        f"INSERT INTO {this.render()} ({', '.join(map(column, names))})\n"
        f"SELECT {', '.join(map(column, values))}\nFROM {branch.render()};"
    )


def node_of(relation: StreamSqlRelation, nodes: Nodes) -> Mapping[str, Any] | None:
    """The model whose relation it is."""
    wanted = (relation.schema, relation.identifier)
    return next(
        (
            node
            for node in nodes
            if node["resource_type"] in ("model", "seed", "snapshot")
            and (node["schema"], node["alias"]) == wanted
        ),
        None,
    )


def check_sinks(model: Mapping[str, Any], nodes: Nodes) -> None:
    """Refuse branches that are declared on one side only.

    Error: PARTIAL_UPDATE_INVALID, listing them.
    """
    read = set(model["depends_on"]["nodes"])
    problems = []
    for node in nodes:
        sink = (node.get("config") or {}).get("sink")
        if sink is None or node["resource_type"] != "model":
            continue
        ours = sink == model["name"]
        if ours and node["unique_id"] not in read:
            problems.append(
                f"`{node['name']}` has this model as its `sink`, but is not in it: "
                f"add {{{{ branch(ref('{node['name']}')) }}}}"
            )
        if not ours and node["unique_id"] in read:
            problems.append(f"`{node['name']}` has a different `sink`: `{sink}`")
    if problems:
        raise StreamSqlError(
            "PARTIAL_UPDATE_INVALID",
            "the branches of a wide table do not match their `sink`",
            given=model_config.listed(problems),
            hint="`sink` of a branch must name the model that contains `branch(ref(…))`",
            place=Place(model["unique_id"]),
        )


def _is_texts(value: Any) -> bool:
    return isinstance(value, Mapping) and all(isinstance(each, str) for each in value.values())
