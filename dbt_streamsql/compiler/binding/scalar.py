"""Which scalar expressions depend on the row alone; no others can be evaluated on changes."""

from __future__ import annotations

from sqlglot import exp

from dbt_streamsql.compiler.parsing.builtin_functions import (
    AGGREGATES,
    GENERATORS,
    RAISING,
    VOLATILE,
    WINDOWS,
)
from dbt_streamsql.compiler.parsing.dialect import KNOWN, to_sql
from dbt_streamsql.compiler.parsing.unsupported import Unsupported, obstacle
from dbt_streamsql.plan.algebra.expression import Expr, Ref, escape

_CLOCKLESS = frozenset({"unix_timestamp", "to_unix_timestamp"})
"""Clocks only when called without an argument."""
_USERS = "Spark does not report whether a user's function is deterministic"
_USERS_HINT = (
    "write it as a SQL function of the project (docs/functions.md), which is inlined into the"
    " query, or compute the column in a table or an incremental model and read that"
)
_CLOCK_HINT = "compare with a column, or refresh the view in full"


def check_scalar(node: exp.Expr, builtin: frozenset[str]) -> None:
    """Refuse an expression whose value depends on more than the columns it names."""
    for part in node.walk():
        if isinstance(part, exp.Window):
            raise obstacle(part, "window function", "it is not supported in this position")
        if isinstance(part, exp.Query):
            raise obstacle(
                part,
                "sub-query in an expression",
                "so far only sub-queries in FROM are maintained from changes",
                "join it in FROM",
            )
        if isinstance(part, exp.Func):
            _check_function(part, builtin)
        if isinstance(part, exp.Placeholder | exp.Parameter | exp.SessionParameter):
            raise obstacle(part, "parameter", "a view cannot have parameters")


def _check_function(node: exp.Func, builtin: frozenset[str]) -> None:
    name = called(node)
    if _is_volatile(node):
        raise _refuse(node, name, "its value changes from call to call", _CLOCK_HINT)
    if name in AGGREGATES:
        raise _refuse(node, name, "this aggregate is not maintained from changes here")
    if name in GENERATORS:
        raise _refuse(node, name, "row generators are not maintained from changes yet")
    if name in WINDOWS:
        raise _refuse(node, name, "windows are not maintained from changes yet")
    if name and name not in builtin:
        raise _refuse(node, name, _USERS, _USERS_HINT)


def called(node: exp.Expr) -> str:
    """The lower-case name of the function that a node calls; '' for other nodes."""
    if isinstance(node, exp.Anonymous):
        return node.name.lower()
    # The parser treats AND, CASE, CAST and LIKE as functions too.
    return str(node.sql_name()).lower() if isinstance(node, KNOWN) else ""


def _is_volatile(node: exp.Func) -> bool:
    name = called(node)
    return name in VOLATILE and not (name in _CLOCKLESS and node.expressions)


def is_volatile(tree: exp.Expr, builtin: frozenset[str]) -> bool:
    """Whether the same tables can give different results: clocks, random values, UDFs."""
    if tree.find(exp.TableSample):
        return True
    known = builtin | AGGREGATES | GENERATORS | WINDOWS
    for node in tree.find_all(exp.Func):
        name = called(node)
        if name not in RAISING and (_is_volatile(node) or (name and name not in known)):
            return True
    return False


def _refuse(node: exp.Func, name: str, why: str, rewrite: str = "") -> Unsupported:
    return obstacle(node, f"{name}()", why, rewrite)


def to_expr(node: exp.Expr) -> Expr:
    """The expression as text with holes for its columns."""
    refs: list[Ref] = []
    marked = node.copy()
    holes: list[tuple[exp.Column, str]] = []
    for column in list(marked.find_all(exp.Column)):
        ref = (column.table, column.name)
        if ref not in refs:
            refs.append(ref)
        holes.append((column, f"streamsqlhole{refs.index(ref)}x"))
    for column, name in holes:
        hole = exp.column(exp.to_identifier(name))
        if column is marked:
            marked = hole
        else:
            column.replace(hole)
    text = escape(to_sql(marked, copy=False))
    for index in range(len(refs)):
        text = text.replace(f"streamsqlhole{index}x", f"{{{index}}}")
    return Expr(text, tuple(refs))


def direction(item: exp.Expr) -> str:
    """What follows the expression in the text: `DESC NULLS LAST` and the like."""
    bare = item.copy()
    if not isinstance(bare, exp.Ordered):
        return ""
    bare.set("this", exp.column("x"))
    return to_sql(bare).removeprefix("x").strip()


def conjuncts(node: exp.Expr | None) -> list[exp.Expr]:
    """The terms of an AND, or an empty list."""
    if node is None:
        return []
    node = node.unnest()
    return list(node.flatten()) if isinstance(node, exp.And) else [node]


def filters(node: exp.Expr | None) -> list[exp.Expr]:
    """The conjuncts of a condition that only has to be true, and equalities that follow from them:
    `a = b AND x OR a = b AND y` is true only where `a = b` is.

    Spark takes them out too. Here they say by which columns a join finds its rows.
    """
    terms = conjuncts(node)
    shared = [equal for term in terms for equal in _in_each_way(term)]
    return terms + [equal for equal in dict.fromkeys(shared) if equal not in terms]


def _in_each_way(term: exp.Expr) -> list[exp.Expr]:
    """The equalities of columns that are conjuncts of all sides of an OR."""
    either = term.unnest()
    if not isinstance(either, exp.Or):
        return []
    first, *others = (
        [each for each in conjuncts(side) if _equates(each)] for side in either.flatten()
    )
    return [equal for equal in first if all(equal in other for other in others)]


def _equates(term: exp.Expr) -> bool:
    term = term.unnest()
    return isinstance(term, exp.EQ) and all(
        isinstance(side, exp.Column) for side in (term.this, term.expression)
    )
