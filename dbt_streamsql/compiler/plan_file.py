"""The plan file of a compiled view, and the check that a plan file still fits a query."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from dbt_streamsql.__version__ import version
from dbt_streamsql.compiler.codegen.render_sql import plain
from dbt_streamsql.errors import Place, StreamSqlError
from dbt_streamsql.plan.algebra import relational
from dbt_streamsql.plan.algebra.catalog import Catalog
from dbt_streamsql.plan.algebra.relational import (
    CLOCK,
    Node,
    Scan,
    children,
    walk,
)
from dbt_streamsql.plan.compiled import CompiledPlan
from dbt_streamsql.plan.document import PlanDocument, PlanNode, differences
from dbt_streamsql.plan.operators import Operator
from dbt_streamsql.plan.state import DEDUPLICATE, LIMIT, RANK
from dbt_streamsql.plan.tree_json import node_of, tree_of
from dbt_streamsql.quoting import quote

_TYPES: Mapping[type[Any], str] = {
    relational.Aggregate: "group-aggregate",
    relational.Branches: "wide-table",
    relational.Chosen: "scan",
    relational.Constant: "values",
    relational.Generate: "correlate",
    relational.Limit: "sort-limit",
    relational.Match: "join",
    relational.Scan: "scan",
    relational.UnionAll: "union",
    relational.Window: "over-aggregate",
}
_OF_STATE = {DEDUPLICATE: "deduplicate", RANK: "rank", LIMIT: "limit"}
_NOT_OF_A_NODE = ("node", "input", "left", "right", "ttl")


def document_of(
    plan: CompiledPlan, catalog: Catalog, stored: Mapping[int, bool] = MappingProxyType({})
) -> PlanDocument:
    """The plan file; for a view with full refresh it has no nodes.

    `stored`: whether an operator has a state table, for each that can have one.
    """
    nodes: tuple[PlanNode, ...] = ()
    if plan.mode == "incremental":
        nodes = tuple(replace(node, stored=stored.get(node.id)) for node in _nodes(plan, catalog))
    return PlanDocument(plan.table, plan.sql, plan.mode, plan.strategy, version, nodes)


def check_fit(given: PlanDocument, compiled: PlanDocument, place: Place) -> None:
    """PLAN_MISMATCH with the differences when a plan file is not the plan of a query."""
    wrong = [text for text in differences(given, compiled, settings=False) if "table:" not in text]
    if wrong and given.engine != compiled.engine:
        wrong.append(
            f"it was written by version {given.engine}, and this is version {compiled.engine}"
        )
    if wrong:
        raise StreamSqlError(
            "PLAN_MISMATCH",
            "the plan file does not match this query",
            given="; ".join(wrong),
            allowed="different TTLs, and other operators that are stored; everything else must be "
            "as in the compiler's plan",
            hint="compile it again with `streamsql plan compile`, and change it again",
            place=place,
        )


def _nodes(plan: CompiledPlan, catalog: Catalog) -> tuple[PlanNode, ...]:
    root = node_of(plan.tree)
    numbered = dict(enumerate(walk(root), 1))
    schemas = _schemas(numbered, catalog)
    operators = {operator.id: operator for operator in plan.operators if operator.id}
    return tuple(
        _node(number, node, operators[number], _inputs(number, node), schemas[number])
        for number, node in numbered.items()
    )


def _node(
    number: int,
    node: Node,
    operator: Operator,
    inputs: tuple[int, ...],
    schema: tuple[tuple[str, str], ...],
) -> PlanNode:
    kind = _TYPES.get(type(node)) or ("join" if len(inputs) > 1 else "calc")
    for state in operator.states:
        kind = _OF_STATE.get(state.name, kind)
    return PlanNode(
        id=number,
        type=f"{kind}_1",
        description=f"{operator.name} {operator.detail}".rstrip(),
        inputs=inputs,
        schema=schema,
        keys=operator.keys,
        changelog=operator.changelog,
        strategy=operator.strategy,
        spec=_spec(node),
        state=operator.states,
    )


def _inputs(number: int, node: Node) -> tuple[int, ...]:
    found = []
    following = number + 1
    for child in children(node):
        found.append(following)
        following += sum(1 for _ in walk(child))
    return tuple(found)


def _spec(node: Node) -> Mapping[str, Any]:
    """What a node does, without its input nodes: only their aliases."""
    tree = tree_of(node)
    spec = {name: value for name, value in tree.items() if name not in _NOT_OF_A_NODE}
    for side in ("left", "right"):
        if side in tree:
            spec[side] = tree[side]["alias"]
    if "inputs" in spec:
        spec["inputs"] = [child.get("alias", "") for child in tree["inputs"]]
    return spec


def _schemas(
    numbered: Mapping[int, Node], catalog: Catalog
) -> dict[int, tuple[tuple[str, str], ...]]:
    """The columns of all nodes with their types, from a single analysis by Spark."""
    places = [
        (number, name)
        for number, node in numbered.items()
        if not (isinstance(node, Scan) and node.table == CLOCK)
        for name in node.columns
    ]
    wanted = dict.fromkeys(number for number, _ in places)
    items = ", ".join(f"n{n}.{quote(name)} AS c{at}" for at, (n, name) in enumerate(places))
    rows = " CROSS JOIN ".join(f"(\n{plain(numbered[n])}\n) n{n}" for n in wanted)
    types = catalog.schema(f"SELECT {items} FROM {rows}") if places else ()
    found: dict[int, tuple[tuple[str, str], ...]] = dict.fromkeys(numbered, ())
    for (number, name), column in zip(places, types, strict=True):
        found[number] += ((name, column.type),)
    return found
