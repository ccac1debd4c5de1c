"""Zero has one sign wherever its sign could be observed.

Spark treats -0.0 and 0.0 as the same value when it compares, groups and joins, so a change from
one to the other is not a change; as text they differ. So each expression that could distinguish
them reads a column of FLOAT or DOUBLE as `x + 0`, which is never negative zero.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from dbt_streamsql.compiler.lowering.schemas import Schemas
from dbt_streamsql.plan.algebra.expression import Expr, Ref
from dbt_streamsql.plan.algebra.relational import (
    Generate,
    Input,
    Match,
    Node,
    Output,
    Scan,
    Select,
    children,
    walk,
    with_children,
)

_POSITIVE = {"float": "{0} + 0F", "double": "{0} + 0D"}
_CALL = re.compile(r"\b(\w+)\s*\(")
_CAST_TO = re.compile(r"(?:\bAS|::)\s*(\w+)", re.IGNORECASE)
_BLIND = frozenset(
    [
        *("abs", "avg", "cast", "ceil", "ceiling", "count", "floor", "isnan", "isnotnull"),
        *("isnull", "mod", "round", "sqrt", "sum"),
        *("and", "as", "between", "else", "in", "is", "not", "on", "or", "then", "when"),
    ]
)
"""Calls with equal results for both zeros, and words that may precede a parenthesis."""
_NUMBERS = frozenset(
    [
        *("bigint", "byte", "int", "integer", "long", "short", "smallint", "tinyint"),
        *("boolean", "dec", "decimal", "double", "float", "numeric", "real"),
    ]
)


def one_zero(root: Node, schemas: Schemas) -> Node:
    """The tree in which no expression observes whether a zero of a column is negative."""
    read = (node for node in walk(root) if isinstance(node, Scan))
    types = {column.type for scan in read for column in schemas.of(scan)}
    return _one_zero(root, schemas) if types & _POSITIVE.keys() else root


def _one_zero(node: Node, schemas: Schemas) -> Node:
    made = with_children(node, tuple(_one_zero(child, schemas) for child in children(node)))
    exprs, inputs = _parts(node)
    if not any(map(_sees, exprs)):
        return made
    values: Mapping[Ref, Expr] = {
        (child.alias, column.name): Expr(_POSITIVE[column.type], ((child.alias, column.name),))
        for child in inputs
        for column in schemas.of(child.node)
        if column.type in _POSITIVE
    }

    def read(expr: Expr) -> Expr:
        return expr.over(values) if _sees(expr) else expr

    def outputs(given: tuple[Output, ...]) -> tuple[Output, ...]:
        return tuple(replace(output, expr=read(output.expr)) for output in given)

    if isinstance(made, Select):
        where = tuple(map(read, made.where))
        return replace(made, where=where, outputs=outputs(made.outputs))
    if isinstance(made, Match):
        return replace(made, on=tuple(map(read, made.on)), outputs=outputs(made.outputs))
    return replace(made, call=read(made.call)) if isinstance(made, Generate) else made


def _parts(node: Node) -> tuple[tuple[Expr, ...], tuple[Input, ...]]:
    """The expressions of a node that may call functions, and what they read."""
    if isinstance(node, Select):
        return (*node.where, *(output.expr for output in node.outputs)), node.inputs
    if isinstance(node, Match):
        shown = (output.expr for output in node.outputs)
        return (*node.on, *shown), (node.left, node.right)
    return ((node.call,), (Input("i", node.input),)) if isinstance(node, Generate) else ((), ())


def _sees(expr: Expr) -> bool:
    """Whether an expression may give different results for the two zeros."""
    text = expr.template
    called = {name.lower() for name in _CALL.findall(text)}
    to = {name.lower() for name in _CAST_TO.findall(text)}
    return bool(expr.refs) and ("||" in text or bool(called - _BLIND) or bool(to - _NUMBERS))
