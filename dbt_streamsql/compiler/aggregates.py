"""Finding the aggregate calls of a SELECT block and their plain form."""

from __future__ import annotations

from sqlglot import exp

from dbt_streamsql.compiler.functions import AGGREGATES
from dbt_streamsql.compiler.reasons import obstacle

PLAIN: dict[type[exp.Expr], str] = {
    exp.Count: "COUNT",
    exp.Sum: "SUM",
    exp.Avg: "AVG",
    exp.Min: "MIN",
    exp.Max: "MAX",
}

Calls = dict[exp.Expr, tuple[str, exp.Expr | None, bool]]
"""Call as written -> (function, argument or None for COUNT(*), DISTINCT)."""


def find_calls(items: list[exp.Expr]) -> Calls:
    """The aggregate calls of a block, each once; raises `Unsupported` for the others.

    `AGG(x) FILTER (WHERE p)` is read as `AGG(CASE WHEN p THEN x END)`, COUNT_IF(p) as
    `COUNT(CASE WHEN p THEN 1 END)`.
    """
    found: Calls = {}
    for item in items:
        for node in item.find_all(exp.AggFunc, exp.Anonymous, exp.Filter):
            inside = node.parent
            while inside is not None and not isinstance(inside, exp.Query):
                if isinstance(inside, exp.Window):
                    raise obstacle(
                        inside, "window function", "windows are not maintained from changes yet"
                    )
                if isinstance(inside, exp.Filter):
                    break
                inside = inside.parent
            if isinstance(inside, exp.Filter) and node is not inside:
                continue
            if isinstance(node, exp.Anonymous):
                if node.name.lower() in AGGREGATES:
                    raise _refused(node, node.name.lower())
                continue
            if _inside_query(node, item):
                raise obstacle(node, "sub-query", "only sub-queries in FROM are maintained yet")
            found[node] = _plain(node)
    return found


def _inside_query(node: exp.Expr, item: exp.Expr) -> bool:
    parent = node.parent
    while parent is not None and parent is not item.parent:
        if isinstance(parent, exp.Query):
            return True
        parent = parent.parent
    return False


def _refused(node: exp.Expr, name: str) -> Exception:
    return obstacle(
        node,
        f"{name}()",
        "this aggregate is not maintained from changes yet",
        "use COUNT, SUM, AVG, MIN or MAX",
    )


def _plain(node: exp.Expr) -> tuple[str, exp.Expr | None, bool]:
    condition: exp.Expr | None = None
    call = node
    if isinstance(node, exp.Filter):
        call, condition = node.this, node.expression.this
    if isinstance(call, exp.CountIf):
        when = call.this if condition is None else exp.and_(condition, call.this)
        return "COUNT", exp.case().when(when.copy(), exp.Literal.number(1)), False
    function = PLAIN.get(type(call))
    if function is None:
        raise _refused(node, call.key)
    argument: exp.Expr | None = call.this
    distinct = False
    if isinstance(argument, exp.Distinct):
        distinct = True
        if len(argument.expressions) != 1:
            raise obstacle(node, "COUNT(DISTINCT a, b)", "only one column is maintained yet")
        argument = argument.expressions[0]
    if call.expressions:
        raise obstacle(node, f"{function}(a, b)", "only one argument is maintained yet")
    if isinstance(argument, exp.Star | exp.Literal):
        argument = None if function == "COUNT" else argument
    if condition is not None:
        value = argument if argument is not None else exp.Literal.number(1)
        argument = exp.case().when(condition.copy(), value.copy())
    return function, argument, distinct
