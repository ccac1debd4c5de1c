"""Find the aggregate calls of a SELECT block, in a form that depends only on the rows.

Some of Spark's aggregates may return any of several correct results: which row is FIRST, in what
order a list is collected, which of two equal maxima MAX_BY takes. Two runs can differ, and a
change computed from two runs would be wrong. They are replaced by one of their correct results:
the smallest value, the sorted list (docs/decisions/0010).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from sqlglot import exp

from dbt_streamsql.compiler.binding.scalar import called, direction, to_expr
from dbt_streamsql.compiler.parsing.builtin_functions import AGGREGATES
from dbt_streamsql.compiler.parsing.dialect import to_sql
from dbt_streamsql.compiler.parsing.unsupported import obstacle
from dbt_streamsql.plan.algebra.likeness import stand_in
from dbt_streamsql.plan.algebra.relational import Call
from dbt_streamsql.plan.algebra.schema import Column

_PLAIN = {
    "count": "COUNT",
    "sum": "SUM",
    "avg": "AVG",
    "mean": "AVG",
    "min": "MIN",
    "max": "MAX",
    "bool_and": "MIN",
    "every": "MIN",
    "bool_or": "MAX",
    "some": "MAX",
    "any": "MAX",
}
_OF_BOOLEANS = frozenset({"bool_and", "every", "bool_or", "some", "any"})
_ANY = frozenset({"first", "first_value", "last", "last_value", "any_value"})
_LISTS = frozenset({"collect_list", "array_agg", "collect_set"})
_BY = frozenset({"max_by", "min_by"})
_TIED = "struct({1}, {0})"
"""Breaks ties between two rows with the same greatest or least value."""
_GROUPING = frozenset({"grouping", "grouping_id"})
UNSTABLE = (
    "percentile_approx",
    "approx_percentile",
    "histogram_numeric",
    "approx_top_k",
    "kll_sketch",
    "try_sum",
    "try_avg",
)
"""Their result may depend on the order of the rows: stored, but never built upon."""


@dataclass(frozen=True)
class Found:
    """An aggregate call: `function` of at most one argument, or a `template` over `args`.

    `chosen`: it is one of several correct results of the text.
    """

    function: str
    args: tuple[exp.Expr, ...]
    distinct: bool = False
    template: str = ""
    chosen: bool = False


Calls = dict[exp.Expr, Found]

WRAPPERS = (exp.IgnoreNulls, exp.RespectNulls, exp.Filter, exp.WithinGroup)
"""Wrappers of a call: over which of the rows, and in which order, it is computed."""


def find_calls(items: list[exp.Expr]) -> Calls:
    """The aggregate calls of a block, each once; sub-queries keep their own calls.

    `AGG(x) FILTER (WHERE p)` of plain aggregates is read as `AGG(CASE WHEN p THEN x END)`,
    COUNT_IF(p) as `COUNT(CASE WHEN p THEN 1 END)`.
    """
    found: Calls = {}
    for item in items:
        for node in _calls(item):
            found.setdefault(node, _form(node))
    return found


def _calls(node: exp.Expr) -> Iterator[exp.Expr]:
    if isinstance(node, exp.In) and node.args.get("query") is not None:
        yield from _calls(node.this)
        return
    if isinstance(node, exp.Query | exp.Exists):
        return
    if isinstance(node, exp.Window):
        # The function of a window is not an aggregate of the block; its arguments may be.
        function: exp.Expr = node.this
        while isinstance(function, WRAPPERS):
            if function.expression is not None:
                yield from _calls(function.expression)
            function = function.this
        for part in (*function.iter_expressions(), *node.iter_expressions()):
            if part is not node.this:
                yield from _calls(part)
        return
    if _is_call(node):
        yield node
        return
    for part in node.iter_expressions():
        yield from _calls(part)


def _is_call(node: exp.Expr) -> bool:
    if isinstance(node, WRAPPERS):
        return _is_call(node.this) or isinstance(node, exp.WithinGroup)
    name = called(node)
    return name in AGGREGATES and name not in _GROUPING


def _form(node: exp.Expr) -> Found:
    condition: exp.Expr | None = None
    call = node
    if isinstance(call, exp.Filter):
        call, condition = call.this, call.expression.this
    plain = _plain(call, condition)
    if plain is not None:
        return plain
    within = call if isinstance(call, exp.WithinGroup) else None
    inner = (
        call.this
        if isinstance(call, exp.WithinGroup | exp.IgnoreNulls | exp.RespectNulls)
        else call
    )
    name = called(inner)
    arguments = _arguments(inner)
    if name in _ANY and arguments:
        return _chosen("MIN", arguments[0], condition)
    if name in _BY and len(arguments) == 2:
        text = f"{name}({{0}}, IF({{1}} IS NULL, NULL, {_TIED}))"
        return _templated(text, tuple(arguments), condition, chosen=True)
    if name in _LISTS:
        one = arguments[0]
        distinct = isinstance(one, exp.Distinct)
        value = one.expressions[0] if isinstance(one, exp.Distinct) else one
        kind = "collect_set" if distinct or name == "collect_set" else "collect_list"
        return _templated(f"sort_array({kind}({{0}}))", (value,), condition, chosen=True)
    if name == "mode" and within is None and len(arguments) == 1:
        return _templated("mode({0}, true)", tuple(arguments), condition, chosen=True)
    if name in {"percentile_cont", "percentile_disc"} and within is not None:
        return _percentile(name, arguments, within, condition)
    if name in {"listagg", "string_agg"}:
        return _listagg(arguments, within, condition)
    return _general(call, condition)


def told_apart(call: Call, types: Mapping[str, Column]) -> Call:
    """A call that selects a value, using stand-ins for values that Spark cannot compare."""
    if not call.uses or types[call.uses[0]].is_comparable:
        return call
    value = stand_in(types[call.uses[0]].type, "{0}")
    if call.function == "MIN" and call.arg is not None:
        text = f"min_by({{0}}, IF({{0}} IS NULL, NULL, {value}))"
        return replace(call, function="", arg=None, template=text, args=(call.arg,))
    return replace(call, template=call.template.replace(_TIED, f"struct({{1}}, {value})"))


def _plain(call: exp.Expr, condition: exp.Expr | None) -> Found | None:
    name, arguments = called(call), _arguments(call)
    if len(arguments) != 1:
        return None
    if name == "count_if" and not isinstance(arguments[0], exp.Distinct):
        when = arguments[0].copy()
        when = when if condition is None else exp.and_(condition.copy(), when)
        return Found("COUNT", (exp.case().when(when, exp.Literal.number(1)),))
    function = _PLAIN.get(name)
    if function is None:
        return None
    argument, distinct = arguments[0], False
    if isinstance(argument, exp.Distinct):
        distinct = True
        if len(argument.expressions) != 1:
            return None
        argument = argument.expressions[0]
    if function == "COUNT" and not distinct and isinstance(argument, exp.Star | exp.Literal):
        if condition is None:
            return Found("COUNT", ())
        argument = exp.Literal.number(1)
    if isinstance(argument, exp.Star):
        raise obstacle(call, f"{function}(DISTINCT *)", "name the columns")
    if function in {"MIN", "MAX"}:
        distinct = False
    if name in _OF_BOOLEANS:
        argument = exp.cast(argument, exp.DType.BOOLEAN)
    if condition is not None:
        argument = exp.case().when(condition.copy(), argument.copy())
    return Found(function, (argument,), distinct)


def _chosen(function: str, argument: exp.Expr, condition: exp.Expr | None) -> Found:
    if condition is not None:
        argument = exp.case().when(condition.copy(), argument.copy())
    return Found(function, (argument,), chosen=True)


def _templated(
    text: str, args: tuple[exp.Expr, ...], condition: exp.Expr | None, *, chosen: bool = False
) -> Found:
    if condition is not None:
        sorted_ = text.startswith("sort_array(")
        call = text.removeprefix("sort_array(").removesuffix(")") if sorted_ else text
        text = f"{call} FILTER (WHERE {{{len(args)}}})"
        text = f"sort_array({text})" if sorted_ else text
        args = (*args, condition)
    return Found("", args, template=text, chosen=chosen)


def _percentile(
    name: str, arguments: list[exp.Expr], within: exp.WithinGroup, condition: exp.Expr | None
) -> Found:
    if arguments[0].find(exp.Column) is not None:
        raise obstacle(within, f"{name}()", "the percentage must be a constant")
    share = to_sql(arguments[0])
    ordered = within.expression.expressions[0]
    down = " DESC" if isinstance(ordered, exp.Ordered) and ordered.args.get("desc") else ""
    value = ordered.this if isinstance(ordered, exp.Ordered) else ordered
    text = f"{name}({share}) WITHIN GROUP (ORDER BY {{0}}{down})"
    return _templated(text, (value,), condition)


def _listagg(
    arguments: list[exp.Expr], within: exp.WithinGroup | None, condition: exp.Expr | None
) -> Found:
    distinct = ""
    if isinstance(arguments[0], exp.Distinct):
        arguments, distinct = arguments[0].expressions, "DISTINCT "
    value = arguments[0]
    ordered = list(within.expression.expressions) if within is not None else []
    args = [value]
    separator = ", ''"
    if len(arguments) > 1:
        separator = f", {to_expr(arguments[1]).template}"
        if arguments[1].find(exp.Column) is not None:
            raise obstacle(arguments[1], "listagg()", "the separator must be a constant")
    order = []
    for item in ordered:
        # With DISTINCT the value itself is ordered: Spark allows nothing else.
        order.append(f"{{{0 if distinct else len(args)}}} {direction(item)}".strip())
        if not distinct:
            args.append(item.this)
    if not (distinct and ordered):
        order.append("{0}")
    text = f"listagg({distinct}{{0}}{separator}) WITHIN GROUP (ORDER BY {', '.join(order)})"
    return _templated(text, tuple(args), condition, chosen=True)


_STRUCTURE = (exp.Distinct, exp.Order, exp.Ordered, exp.WithinGroup, exp.IgnoreNulls, exp.Tuple)


def _general(call: exp.Expr, condition: exp.Expr | None) -> Found:
    """Any other aggregate: its text with a hole for each argument that names a column."""
    args: list[exp.Expr] = []
    marked = call.copy()

    def cut(node: exp.Expr) -> None:
        for part in list(node.iter_expressions()):
            if isinstance(part, _STRUCTURE) or (node is marked and called(part) in AGGREGATES):
                cut(part)
            elif part.find(exp.Column) is not None:
                part.replace(exp.column(exp.to_identifier(f"a{len(args)}")))
                args.append(part)

    cut(marked)
    expr = to_expr(marked)
    order = [int(name.removeprefix("a")) for _, name in expr.refs]
    return _templated(expr.template, tuple(args[index] for index in order), condition)


def _arguments(call: exp.Expr) -> list[exp.Expr]:
    if isinstance(call, exp.Anonymous):
        bare = (exp.IgnoreNulls, exp.RespectNulls)
        return [a.this if isinstance(a, bare) else a for a in call.expressions]
    found = [call.args[key] for key in ("this", "expression") if call.args.get(key) is not None]
    more = [value for key, value in call.args.items() if key not in {"this", "expression"}]
    for value in more:
        found += [
            v for v in (value if isinstance(value, list) else [value]) if isinstance(v, exp.Expr)
        ]
    return [argument for argument in found if isinstance(argument, exp.Expr)]
