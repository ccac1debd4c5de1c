"""Keys of a view's inputs, as a dbt project declares them: `meta.streamsql.keys` of a source or of
a model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from dbt_streamsql.adapter.common.error_messages import listed
from dbt_streamsql.adapter.config.streaming_table import KEY
from dbt_streamsql.errors import Place, StreamSqlError
from dbt_streamsql.plan.definition.table_key import TableKey
from dbt_streamsql.quoting import TableName

_FIELDS = ("column", "references", "to", "rely")


def keys_of(name: str, nodes: Iterable[Mapping[str, Any]]) -> list[TableKey]:
    """The keys that may be relied on, of what a model reads: nodes of dbt's graph.

    Error: CONFIG_INVALID, listing everything wrong.
    """
    problems: list[str] = []
    found = [key for node in nodes for key in _of_node(node, problems)]
    if problems:
        raise StreamSqlError(
            "CONFIG_INVALID",
            "`meta.streamsql.keys` has " + ("an error" if len(problems) == 1 else "errors"),
            given=listed(problems),
            allowed="a list of {column: id, rely: true} for unique columns, and of {column: "
            "order_id, references: orders, to: id, rely: true} for foreign keys",
            place=Place(name),
        )
    return found


def _of_node(node: Mapping[str, Any], problems: list[str]) -> list[TableKey]:
    meta = (node.get("config") or {}).get("meta") or node.get("meta") or {}
    declared = meta.get(KEY)
    given = declared.get("keys") if isinstance(declared, Mapping) else None
    if not given:
        return []
    of, table = node["unique_id"], node.get("relation_name")
    if not isinstance(given, list) or not table:
        problems.append(f"{of}: not a list of keys")
        return []
    found = []
    for at, key in enumerate(given, 1):
        problem = _problem(key)
        if problem:
            problems.append(f"{of}: key {at}: {problem}")
        elif key.get("rely"):
            found.append(_key(TableName.parse(table), key))
    return found


def _problem(key: Any) -> str:
    if not isinstance(key, Mapping):
        return f"not a mapping: {key!r}"
    if unknown := sorted(str(each) for each in key if each not in _FIELDS):
        return f"unknown: {', '.join(unknown)}"
    texts = ("column", *(each for each in ("references", "to") if each in key))
    if wrong := [each for each in texts if not (isinstance(key.get(each), str) and key[each])]:
        return f"`{'`, `'.join(wrong)}` must be a name"
    if ("references" in key) != ("to" in key):
        return "`references` and `to` belong together"
    if not isinstance(key.get("rely", False), bool):
        return f"`rely` must be true or false, not {key['rely']!r}"
    return ""


def _key(table: TableName, key: Mapping[str, Any]) -> TableKey:
    """A table that is referenced by its name alone is in the schema of the other one."""
    if "references" not in key:
        return TableKey(str(table), key["column"])
    parent = TableName.parse(key["references"], table.catalog, table.schema)
    return TableKey(str(table), key["column"], str(parent), key["to"])
