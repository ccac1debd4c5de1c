"""A failing scenario with fewer epochs, statements, rows and a simpler query that fails alike."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from time import monotonic

import sqlglot
from sqlglot import exp

from tests.differential.duck_campaign import Failure, play
from tests.differential.duck_grammar import Scenario, View

SECONDS = 60
"""Time that one failure may take to become small."""

_VALUES = re.compile(r"(INSERT INTO \w+ VALUES )(.*)")


def shrink(failure: Failure) -> Failure:
    """The smallest scenario that was found, with its own error."""
    until = monotonic() + SECONDS
    smaller = True
    while smaller and monotonic() < until:
        smaller = False
        for candidate in _candidates(failure.scenario):
            if monotonic() > until:
                break
            found = next((f for f in play(candidate) if f.kind == failure.kind), None)
            if found is not None:
                failure, smaller = found, True
                break
    return failure


def _candidates(chosen: Scenario) -> Iterator[Scenario]:
    """Scenarios that are one step smaller, the greatest steps first."""
    if not chosen.quiet:
        yield replace(chosen, quiet=True)
    if chosen.printed:
        yield replace(chosen, printed=False)
    for sql in _simpler(chosen.views[0].sql):
        yield replace(chosen, views=(View(sql),))
    for number in range(len(chosen.epochs)):
        yield replace(chosen, epochs=_without(chosen.epochs, number))
    for number, (first, second) in enumerate(zip(chosen.epochs, chosen.epochs[1:], strict=False)):
        joined = (*chosen.epochs[:number], (*first, *second), *chosen.epochs[number + 2 :])
        yield replace(chosen, epochs=joined)
    if chosen.epochs:
        start = (*chosen.create, *chosen.epochs[0])
        yield replace(chosen, create=start, epochs=chosen.epochs[1:])
    for number, statements in enumerate(chosen.epochs):
        for fewer in _fewer(statements):
            yield replace(
                chosen, epochs=(*chosen.epochs[:number], fewer, *chosen.epochs[number + 1 :])
            )
    for fewer in _fewer(chosen.create):
        yield replace(chosen, create=fewer)


def _without(items: tuple, number: int) -> tuple:
    return (*items[:number], *items[number + 1 :])


def _fewer(statements: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Without one statement, or without one row of one INSERT."""
    for number, statement in enumerate(statements):
        yield _without(statements, number)
        match = _VALUES.match(statement)
        rows = match[2][1:-1].split("), (") if match else []
        if match and len(rows) > 1:
            for cut in range(len(rows)):
                text = match[1] + ", ".join(f"({row})" for row in _without(tuple(rows), cut))
                yield (*statements[:number], text, *statements[number + 1 :])


def turned(statement: str) -> str:
    """An INSERT with its rows from last to first."""
    match = _VALUES.match(statement)
    if match is None:
        return statement
    rows = match[2][1:-1].split("), (")
    return match[1] + ", ".join(f"({row})" for row in reversed(rows))


def _simpler(sql: str) -> Iterator[str]:
    """Queries that are parts of it, or that lack a part of it. Some are not valid: never mind."""
    tree = sqlglot.parse_one(sql, dialect="spark")
    seen = {sql}
    for number, node in enumerate(tree.walk()):
        for made in _variants(tree, node, number):
            text = made.sql(dialect="spark")
            if text not in seen and len(text) < len(sql) + 4:
                seen.add(text)
                yield text


def _variants(tree: exp.Expr, node: exp.Expr, number: int) -> Iterator[exp.Expr]:
    """Trees in which the node with this number is simpler, or gone, or all that there is."""
    if isinstance(node, exp.Query) and node is not tree and not isinstance(node, exp.Subquery):
        yield node.copy()
    if isinstance(node, exp.SetOperation | exp.And | exp.Or):
        yield from (_with(tree, number, side) for side in (node.left, node.right))
    if isinstance(node, exp.Select):
        yield from _shorter(tree, node, number)
    if isinstance(node, exp.Subquery) and node.alias and isinstance(node.this, exp.Select):
        inner = node.this.args.get("from_")
        if inner is not None and isinstance(inner.this, exp.Table):
            yield _with(tree, number, exp.alias_(inner.this.copy(), node.alias, table=True))


def _shorter(tree: exp.Expr, node: exp.Select, number: int) -> Iterator[exp.Expr]:
    """Without one clause, or without one item of a list."""
    for key in ("where", "having", "distinct", "qualify", "limit", "offset", "order"):
        if node.args.get(key):
            yield _with_arg(tree, number, key, None)
    for key in ("joins", "laterals", "expressions"):
        parts = node.args.get(key) or []
        for cut in range(len(parts) if key != "expressions" or len(parts) > 1 else 0):
            rest = [part.copy() for i, part in enumerate(parts) if i != cut]
            yield _with_arg(tree, number, key, rest)


def _with(tree: exp.Expr, number: int, other: exp.Expr) -> exp.Expr:
    """A copy of the tree with another node at a place."""
    copy = tree.copy()
    own = next(part for i, part in enumerate(copy.walk()) if i == number)
    if own is copy:
        return other.copy()
    own.replace(other.copy())
    return copy


def _with_arg(tree: exp.Expr, number: int, key: str, value: list[exp.Expr] | None) -> exp.Expr:
    copy = tree.copy()
    own = next(part for i, part in enumerate(copy.walk()) if i == number)
    own.set(key, value)
    return copy
