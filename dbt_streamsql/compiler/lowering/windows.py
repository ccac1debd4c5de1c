"""Window functions: one node for each PARTITION BY, stacked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from dbt_streamsql.compiler.binding.aggregate_calls import WRAPPERS
from dbt_streamsql.compiler.binding.scalar import (
    called,
    check_scalar,
    direction,
    to_expr,
)
from dbt_streamsql.compiler.lowering.select_block import Block, fresh
from dbt_streamsql.compiler.lowering.view import refuse_incomparable
from dbt_streamsql.compiler.parsing.dialect import to_sql
from dbt_streamsql.compiler.parsing.unsupported import obstacle
from dbt_streamsql.plan.algebra.expression import Expr
from dbt_streamsql.plan.algebra.relational import Output, Over, Window

if TYPE_CHECKING:
    from dbt_streamsql.compiler.lowering.builder import Builder

_NUMBERS = frozenset({"row_number", "ntile", "lag", "lead"})
"""They distinguish rows that the order leaves equal."""
_PEERS = frozenset({"rank", "dense_rank", "percent_rank", "cume_dist"})
"""They treat such rows the same."""
_LISTS = frozenset({"collect_list", "array_agg", "collect_set", "listagg", "string_agg"})
_FIRST = frozenset({"first_value", "first"})
_ENDS = _FIRST | {"last_value", "last"}
_PICKS = frozenset({"last_value", "last", "nth_value", "any_value"})


def windows(builder: Builder, block: Block, tree: exp.Select, items: list[exp.Expr]) -> bool:
    """Compute the window functions in `items`; returns whether one chose between equal rows."""
    found = list(dict.fromkeys(w for item in items for w in _windows(item)))
    if not found:
        return False
    named = {w.name: w for w in tree.args.get("windows") or []}
    groups: dict[tuple[exp.Expr, ...], list[tuple[exp.Window, exp.Window]]] = {}
    for window in found:
        whole = _of_peers(builder, block, _resolved(window, named))
        partition = tuple(dict.fromkeys(whole.args.get("partition_by") or []))
        groups.setdefault(partition, []).append((window, whole))
    chosen = False
    for partition, members in groups.items():
        chosen |= _stage(builder, block, partition, members)
    return chosen


def _windows(node: exp.Expr) -> list[exp.Window]:
    if isinstance(node, exp.Window):
        return [node]
    if isinstance(node, exp.Query):
        return []
    return [found for part in node.iter_expressions() for found in _windows(part)]


def _resolved(window: exp.Window, named: dict[str, exp.Expr]) -> exp.Window:
    """`OVER w` with the definition of w in WINDOW."""
    alias = window.args.get("alias")
    if alias is None:
        return window
    base = named.get(alias.name)
    if base is None:
        raise obstacle(window, f"OVER {alias.name}", "there is no such WINDOW")
    whole = window.copy()
    for key in ("partition_by", "order", "spec"):
        if not whole.args.get(key) and base.args.get(key):
            value = base.args[key]
            whole.set(key, [v.copy() for v in value] if isinstance(value, list) else value.copy())
    whole.set("alias", None)
    return whole


def _of_peers(builder: Builder, block: Block, whole: exp.Window) -> exp.Window:
    """FIRST_VALUE and LAST_VALUE over whole groups of rows that the order leaves equal.

    They may take any value of such a group: the least for the first, the greatest for the last.
    """
    node, spec, order = _function(whole), whole.args.get("spec"), whole.args.get("order")
    name = called(node)
    if name not in _ENDS or order is None or not _by_peers(spec):
        return whole
    if name in _FIRST and spec is None and not _ignores_nulls(whole):
        return whole  # the first row of the partition: one order of all rows is enough
    keys = [item.this for item in order.expressions]
    pick = exp.Min if name in _FIRST else exp.Max
    peers = exp.Window(
        this=pick(this=_argument(node).copy()),
        partition_by=[key.copy() for key in [*(whole.args.get("partition_by") or []), *keys]],
        over="OVER",
    )
    _stage(builder, block, tuple(dict.fromkeys(peers.args["partition_by"])), [(peers, peers)])
    made = whole.copy()
    _argument(_function(made)).replace(peers)
    return made


def _by_peers(spec: exp.Expr | None) -> bool:
    """Whether a frame ends between groups of equal rows, never within one."""
    return spec is None or str(spec.args.get("kind") or "").upper() == "RANGE"


def _ignores_nulls(whole: exp.Window) -> bool:
    node = _function(whole)
    said = [whole.this, *node.expressions[:1]]
    return any(isinstance(part, exp.IgnoreNulls) for part in said) or (
        len(node.expressions) > 1 and node.expressions[1] == exp.true()
    )


def _function(whole: exp.Window) -> exp.Expr:
    """The function call of a window."""
    node: exp.Expr = whole.this
    while isinstance(node, WRAPPERS):
        node = node.this
    return node


def _argument(call: exp.Expr) -> exp.Expr:
    """The first argument of a call, without its NULL treatment."""
    first: exp.Expr = call.expressions[0] if isinstance(call, exp.Anonymous) else call.this
    return first.this if isinstance(first, exp.IgnoreNulls | exp.RespectNulls) else first


def _stage(
    builder: Builder,
    block: Block,
    partition: tuple[exp.Expr, ...],
    members: list[tuple[exp.Window, exp.Window]],
) -> bool:
    block.close([Output(f"__part{i}", block.expr(key)) for i, key in enumerate(partition)])
    below = block.only
    keys = tuple(f"__part{i}" for i in range(len(partition)))
    taken = set(below.columns)
    inside = {("b", column): Expr.column("i", column) for column in below.columns}
    overs = []
    swaps = []
    for window, whole in members:
        name = fresh("__over", taken)
        overs.append(_over(block, whole, name, inside))
        swaps.append((window, name))
    node = Window(below, keys, tuple(overs), *builder.ties(below))
    if node.unlike:
        made = builder.schema(node)[len(below.columns) :]
        refuse_incomparable(made, "the value of a window function")
    block.keep(node)
    for window, name in swaps:
        block.swap(window, name)
    return any(over.ties for over in overs)


def _over(block: Block, whole: exp.Window, name: str, inside: dict[tuple[str, str], Expr]) -> Over:
    order = [
        block.expr(item.this if isinstance(item, exp.Ordered) else item).over(inside)
        for item in (whole.args["order"].expressions if whole.args.get("order") else [])
    ]
    directions = [direction(item) for item in (whole.args["order"].expressions if order else [])]
    spec = whole.args.get("spec")
    frame = to_sql(spec) if spec is not None else ""
    if spec is not None and spec.find(exp.Column) is not None:
        raise obstacle(whole, "window frame", "its bounds must be constants")
    call = _call(block, whole.this).over(inside)
    return Over(
        name,
        call,
        tuple(
            Expr(f"{expr.template} {down}".strip(), expr.refs)
            for expr, down in zip(order, directions, strict=True)
        ),
        frame,
        _ties(whole, frame),
    )


def _call(block: Block, node: exp.Expr) -> Expr:
    """The function of a window, with its arguments checked."""
    swapped = block.swapped(node)
    checked = swapped
    while isinstance(checked, WRAPPERS):
        if checked.expression is not None:
            check_scalar(checked.expression, block.builtin)
        checked = checked.this
    for part in checked.iter_expressions():
        check_scalar(
            part.expressions[0] if isinstance(part, exp.Distinct) else part, block.builtin
        )
    return to_expr(swapped)


def _ties(whole: exp.Window, frame: str) -> bool:
    """Whether the function needs a total order of the rows; refused where none is possible."""
    node = _function(whole)
    name = called(node)
    if name in _ENDS and isinstance(_argument(node), exp.Window):
        return False
    by_rows = frame.upper().startswith("ROWS")
    everything = "UNBOUNDED PRECEDING" in frame.upper() and "UNBOUNDED FOLLOWING" in frame.upper()
    if name in _NUMBERS or (by_rows and not everything):
        return True
    if name in _FIRST:
        return True
    if name in _PICKS:
        if by_rows:
            return True
        raise obstacle(
            whole,
            f"{name}() over a frame by RANGE",
            "the order does not decide between tied rows",
            "use ROWS BETWEEN … in the frame",
        )
    if name in _LISTS:
        if by_rows:
            return True
        raise obstacle(
            whole,
            f"{name}() over a window",
            "the order of its rows is not defined",
            "use ROWS BETWEEN …",
        )
    return False
