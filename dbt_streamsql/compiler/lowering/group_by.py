"""GROUP BY: keys, grouping sets, time windows and sessions; the calls become columns."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

from sqlglot import exp

from dbt_streamsql.compiler.binding.aggregate_calls import Calls, find_calls
from dbt_streamsql.compiler.binding.scalar import called
from dbt_streamsql.compiler.lowering.select_block import Block, fresh
from dbt_streamsql.compiler.parsing.dialect import to_sql
from dbt_streamsql.compiler.parsing.unsupported import obstacle
from dbt_streamsql.plan.algebra.expression import Expr
from dbt_streamsql.plan.algebra.relational import (
    Call,
    Generate,
    Input,
    Output,
    Select,
    Session,
)

if TYPE_CHECKING:
    from dbt_streamsql.compiler.lowering.builder import Builder

_SET = "__set"
"""The column with the grouping set of a row."""


def grouped(builder: Builder, block: Block, tree: exp.Select, calls: Calls) -> Block:
    """The block of the groups, in which keys and calls are columns."""
    group = tree.args.get("group")
    keys, sets = keys_of(tree, group)
    if sets is not None:
        return _grouping_sets(builder, block, tree, keys, sets, calls)
    return calls_over(builder, block, [part for key in keys for part in _parts(tree, key)], calls)


def keys_of(
    tree: exp.Select, group: exp.Group | None
) -> tuple[list[exp.Expr], list[tuple[int, ...]] | None]:
    """All grouping expressions, and the sets of their numbers when there is more than one."""
    if group is None:
        return [], None
    if group.args.get("totals"):
        raise obstacle(group, "WITH TOTALS", "not maintained from changes")
    if group.args.get("all"):
        items = [item.unalias() for item in tree.expressions]
        return list(dict.fromkeys(item for item in items if not find_calls([item]))), None
    listed = list(group.expressions)
    beside = [one for key in _BESIDE for one in group.args.get(key) or []]
    if len(beside) == 1:
        # `a, b WITH ROLLUP`, `a, b GROUPING SETS (…)`: the columns, then the sets.
        whole = beside[0].copy()
        if not whole.expressions:
            whole.set("expressions", [item.copy() for item in listed])
        sets = _sets_of(whole)
        keys = list(dict.fromkeys(listed or (key for one in sets for key in one)))
        return keys, _numbered(keys, sets)
    parts = [_sets_of(item) for item in [*listed, *beside]]
    if not beside and not any(isinstance(item, _MANY) for item in listed):
        return list(dict.fromkeys(key for part in parts for key in part[0])), None
    combined: list[tuple[exp.Expr, ...]] = [()]
    for part in parts:
        combined = [(*old, *new) for old in combined for new in part]
    keys = list(dict.fromkeys(key for one in combined for key in one))
    return keys, _numbered(keys, combined)


_BESIDE = ("grouping_sets", "cube", "rollup")
_MANY = (exp.GroupingSets, exp.Rollup, exp.Cube)


def _numbered(keys: list[exp.Expr], sets: list[tuple[exp.Expr, ...]]) -> list[tuple[int, ...]]:
    missing = next((key for one in sets for key in one if key not in keys), None)
    if missing is not None:
        raise obstacle(
            missing, "GROUPING SETS", "they use a column that is not listed before them"
        )
    return [tuple(sorted({keys.index(key) for key in one})) for one in sets]


def _sets_of(item: exp.Expr) -> list[tuple[exp.Expr, ...]]:
    if isinstance(item, exp.GroupingSets):
        return [found for one in item.expressions for found in _sets_of(one)]
    if isinstance(item, exp.Rollup | exp.Cube):
        pieces = [_columns(one) for one in item.expressions]
        if isinstance(item, exp.Rollup):
            chosen = [pieces[:count] for count in range(len(pieces), -1, -1)]
        else:
            chosen = [
                list(some)
                for count in range(len(pieces), -1, -1)
                for some in combinations(pieces, count)
            ]
        return [tuple(column for piece in some for column in piece) for some in chosen]
    return [_columns(item)]


def _columns(item: exp.Expr) -> tuple[exp.Expr, ...]:
    return tuple(item.expressions) if isinstance(item, exp.Tuple) else (item.unnest(),)


def calls_over(builder: Builder, block: Block, keys: list[exp.Expr], calls: Calls) -> Block:
    """Group the rows of a block; returns the block of the groups."""
    taken: set[str] = set()
    outputs: list[Output] = []
    known: dict[exp.Expr, str] = {}
    session: Session | None = None
    columns: dict[exp.Expr, str] = {}
    for key in keys:
        if _is(key, "session_window"):
            session = _session(block, key, outputs, taken)
            columns[key] = session.name
            continue
        wanted = key.name.lower() if isinstance(key, exp.Column | exp.Dot) else "key"
        name = fresh(wanted, taken)
        outputs.append(Output(name, _key(block, key)))
        columns[key] = name
        known[key] = name
    key_names = tuple(
        columns[key] for key in keys if session is None or columns[key] != session.name
    )
    made = _calls(block, calls, outputs, known, taken)
    if session is not None and not key_names:
        raise obstacle(
            next(key for key in keys if _is(key, "session_window")),
            "session_window()",
            "sessions without another grouping column are refreshed in full",
            "also group by a column",
        )
    if not outputs:
        outputs = [Output("one", Expr("1"))]
    below = block.project(outputs)
    node = builder.typed(below, key_names, [call for call, _ in made], session)
    result = builder.block(block.outer)
    result.inputs = [Input("g", node)]
    result.swaps = {key: ("g", name) for key, name in columns.items()}
    # `1 + k` is `k + 1`.
    result.swaps |= {
        type(key)(this=key.expression.copy(), expression=key.this.copy()): ("g", name)
        for key, name in columns.items()
        if isinstance(key, exp.Add | exp.Mul)
    }
    result.swaps |= {node: ("g", call.name) for call, node in made}
    return result


def _parts(tree: exp.Select, key: exp.Expr) -> list[exp.Expr]:
    """The parts that identify a group: for a time window its used fields, if only fields are used.

    One field determines the other, and a time can be stored and looked up where a struct cannot.
    """
    if not _is(key, "window"):
        return [key]
    shown = [
        node.parent
        for node in tree.find_all(exp.Anonymous)
        if node == key and node.find_ancestor(exp.Group) is None
    ]
    if not all(isinstance(one, exp.Dot) and one.name.lower() in _FIELDS for one in shown):
        return [key]
    start: exp.Expr = exp.Dot(this=key.copy(), expression=exp.to_identifier(_FIELDS[0]))
    return list(dict.fromkeys(one.copy() for one in shown if one is not None)) or [start]


_FIELDS = ("start", "end")
"""The fields of a time window."""


def _key(block: Block, key: exp.Expr) -> Expr:
    if isinstance(key, exp.Dot) and _is(key.this, "window"):
        whole = block.expr_of_generator(key.this)
        return Expr(f"{whole.template}.{key.name.lower()}", whole.refs)
    return block.expr_of_generator(key) if _is(key, "window") else block.expr(key)


def _is(node: exp.Expr, name: str) -> bool:
    return called(node) == name


def _session(block: Block, key: exp.Expr, outputs: list[Output], taken: set[str]) -> Session:
    arguments = list(key.iter_expressions())
    if len(arguments) != 2 or arguments[1].find(exp.Column) is not None:
        raise obstacle(
            key, "session_window()", "only a constant gap is maintained", "use a constant gap"
        )
    time = fresh("session_time", taken)
    outputs.append(Output(time, block.expr(arguments[0])))
    return Session(fresh("session", taken), time, to_sql(arguments[1]))


def _calls(
    block: Block,
    calls: Calls,
    outputs: list[Output],
    known: dict[exp.Expr, str],
    taken: set[str],
) -> list[tuple[Call, exp.Expr]]:
    made: list[tuple[Call, exp.Expr]] = []
    for node, found in calls.items():
        names = []
        for argument in found.args:
            if argument not in known:
                wanted = argument.name.lower() if isinstance(argument, exp.Column) else "arg"
                known[argument] = fresh(wanted, taken)
                outputs.append(Output(known[argument], block.expr(argument)))
            names.append(known[argument])
        label = found.function.lower() or "call"
        name = fresh("_".join([label, *names[:1]]), taken)
        if found.template:
            call = Call(name, "", None, False, "", True, "", "", found.template, tuple(names))
        else:
            arg = names[0] if names else None
            call = Call(name, found.function, arg, found.distinct, "", True, "")
        made.append((call, node))
    return made


def _grouping_sets(
    builder: Builder,
    block: Block,
    tree: exp.Select,
    keys: list[exp.Expr],
    sets: list[tuple[int, ...]],
    calls: Calls,
) -> Block:
    """Each row once per set, its other keys NULL; the set is an extra key, as in Spark."""
    if any(_is(key, "session_window") or _is(key, "window") for key in keys):
        raise obstacle(tree, "GROUPING SETS", "time windows in them are not maintained yet")
    names = [f"__key{index}" for index in range(len(keys))]
    extra = [Output(name, block.expr(key)) for name, key in zip(names, keys, strict=True)]
    arguments = list(dict.fromkeys(arg for found in calls.values() for arg in found.args))
    extra += [Output(f"__arg{index}", block.expr(arg)) for index, arg in enumerate(arguments)]
    below = block.project(extra or [Output("one", Expr("1"))])
    numbers = ", ".join(str(index) for index in range(len(sets)))
    expanded = Generate(below, Expr(f"explode(array({numbers}))"), (_SET,), False)
    outputs = []
    for index, name in enumerate(names):
        inside = ", ".join(str(n) for n, one in enumerate(sets) if index in one) or "-1"
        outputs.append(
            Output(name, Expr(f"IF({{0}} IN ({inside}), {{1}}, NULL)", (("i", _SET), ("i", name))))
        )
    outputs.append(Output(_SET, Expr.column("i", _SET)))
    outputs += [
        Output(f"__arg{index}", Expr.column("i", f"__arg{index}"))
        for index in range(len(arguments))
    ]
    ready = builder.block(block.outer)
    ready.inputs = [Input("i", Select((Input("i", expanded),), (), tuple(outputs)))]
    ready.swaps = {arg: ("i", f"__arg{index}") for index, arg in enumerate(arguments)}
    columns: list[exp.Expr] = [exp.column(name, table="__set") for name in (*names, _SET)]
    ready.names = {("__set", name): ("i", name) for name in (*names, _SET)}
    result = calls_over(builder, ready, columns, calls)
    at = [result.swaps[column] for column in columns]
    result.swaps.update(dict(zip(keys, at, strict=False)))
    _grouping_calls(tree, keys, sets, at[-1], result)
    return result


def _grouping_calls(
    tree: exp.Select,
    keys: list[exp.Expr],
    sets: list[tuple[int, ...]],
    at: tuple[str, str],
    result: Block,
) -> None:
    """GROUPING(k) and GROUPING_ID(): bits computed from the set."""
    nodes: dict[exp.Func, list[int]] = {}
    for part in tree.find_all(exp.Func):
        name = called(part)
        if name not in {"grouping", "grouping_id"}:
            continue
        arguments = [a.unnest() for a in part.iter_expressions()]
        if any(argument not in keys for argument in arguments):
            raise obstacle(part, f"{name}()", "its argument is not a grouping column")
        nodes[part] = [keys.index(a) for a in arguments] or list(range(len(keys)))
    if not nodes:
        return
    outputs = []
    for index, (part, asked) in enumerate(nodes.items()):
        whens = []
        for number, one in enumerate(sets):
            bits = 0
            for key in asked:
                bits = bits * 2 + (0 if key in one else 1)
            whens.append(f"WHEN {number} THEN {bits}")
        kind = "TINYINT" if called(part) == "grouping" else "BIGINT"
        value = Expr(f"CAST(CASE {{0}} {' '.join(whens)} END AS {kind})", (at,))
        outputs.append((part, Output(f"__grouping{index}", value)))
    result.close([output for _, output in outputs])
    for part, output in outputs:
        result.swap(part, output.name)
