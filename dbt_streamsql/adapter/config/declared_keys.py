"""Keys of a view's inputs, as a dbt project declares them: `meta.streamsql.keys` of a source or of
a model, which may say that the keys of the model's contract are meant."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from dbt_streamsql.adapter.common.error_messages import listed
from dbt_streamsql.adapter.config.streaming_table import KEY
from dbt_streamsql.errors import Place, StreamSqlError
from dbt_streamsql.plan.definition.table_key import TableKey
from dbt_streamsql.quoting import TableName

_FIELDS = ("column", "references", "to", "rely")
CONTRACT = "contract"
"""In place of a list of keys: those of the contract."""
_UNIQUE = ("primary_key", "unique")
_TO_MODEL = re.compile(r"\s*(?:ref|source)\((.*)\)\s*")


def keys_of(name: str, nodes: Iterable[Mapping[str, Any]]) -> list[TableKey]:
    """The keys that may be relied on, of what a model reads: nodes of dbt's graph.

    Error: CONFIG_INVALID, listing everything wrong.
    """
    problems: list[str] = []
    read = list(nodes)
    found = [key for node in read for key in _of_node(node, read, problems)]
    if problems:
        raise StreamSqlError(
            "CONFIG_INVALID",
            "`meta.streamsql.keys` has " + ("an error" if len(problems) == 1 else "errors"),
            given=listed(problems),
            allowed="a list of {column: id, rely: true} for unique columns, and of {column: "
            "order_id, references: orders, to: id, rely: true} for foreign keys; or `contract`: "
            "the keys of the model's contract",
            place=Place(name),
        )
    return found


def _of_node(
    node: Mapping[str, Any], read: Sequence[Mapping[str, Any]], problems: list[str]
) -> list[TableKey]:
    meta = (node.get("config") or {}).get("meta") or node.get("meta") or {}
    declared = meta.get(KEY)
    given = declared.get("keys") if isinstance(declared, Mapping) else None
    if not given:
        return []
    of, table = node["unique_id"], node.get("relation_name")
    if given == CONTRACT and table:
        constraints = list(_constraints(node))
        if not constraints:
            problems.append(f"{of}: no key of one column is in its contract")
        return [key for each in constraints for key in _of_constraint(table, each, read)]
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


def _constraints(node: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The keys of one column in the contract of a model: the column, and the constraint."""
    if not ((node.get("config") or {}).get("contract") or {}).get("enforced"):
        return
    kinds = (*_UNIQUE, "foreign_key")
    for each in node.get("constraints") or ():
        columns = each.get("columns") or ()
        if each["type"] in kinds and len(columns) == 1:
            yield columns[0], each
    for name, column in (node.get("columns") or {}).items():
        for each in column.get("constraints") or ():
            if each["type"] in kinds:
                yield name, each


def _of_constraint(
    table: str, given: tuple[str, Mapping[str, Any]], read: Sequence[Mapping[str, Any]]
) -> list[TableKey]:
    """The key that a constraint declares; none where it references what is not read, too."""
    column, constraint = given
    own = TableName.parse(table)
    if constraint["type"] in _UNIQUE:
        return [TableKey(str(own), column)]
    to = constraint.get("to_columns") or ()
    parent = _referenced(constraint.get("to") or "", own, read)
    return [TableKey(str(own), column, parent, to[0])] if parent and len(to) == 1 else []


def _referenced(to: str, own: TableName, read: Sequence[Mapping[str, Any]]) -> str:
    """The table that a foreign key references. dbt replaces `ref('orders')` by the relation when
    it compiles the model that has the key, which may be in an earlier run."""
    call = _TO_MODEL.fullmatch(to)
    if call is None:
        return str(TableName.parse(to, own.catalog, own.schema)) if to else ""
    words = [word.strip().strip("'\"") for word in call[1].split(",")]
    for node in read:
        names = [node.get("package_name"), node.get("source_name"), node.get("name")]
        if node.get("relation_name") and words[-1] == names[-1] and set(words) <= set(names):
            return str(TableName.parse(node["relation_name"]))
    return ""


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
