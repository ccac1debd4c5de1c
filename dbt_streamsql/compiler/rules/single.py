"""Conditions on a relation of one row: a scalar sub-query, or the time of the barrier.

When the row s becomes s', only the rows of L for which the condition p changes its answer move:

    L ⋈_p ds = σ_{p(s') ∧ ¬p(s)} L − σ_{p(s) ∧ ¬p(s')} L

(the three-term rule of temporal filters). The general rule would retract all of σ_p(s) L and
insert σ_p(s') L: one more scan, and most rows would cancel.
"""

from __future__ import annotations

from collections.abc import Callable

from dbt_streamsql.compiler.codegen.emitter import Emitter
from dbt_streamsql.compiler.codegen.render_sql import (
    Source,
    listed,
    relation,
    term,
)
from dbt_streamsql.plan.algebra.expression import (
    Ref,
    dotted,
    escape,
)
from dbt_streamsql.plan.algebra.relational import (
    CLOCK,
    Aggregate,
    Input,
    Node,
    Scan,
    Select,
)
from dbt_streamsql.plan.algebra.schema import HIDDEN_PREFIX, WEIGHT
from dbt_streamsql.quoting import quote

_MOVED = f"{HIDDEN_PREFIX}moved"


def other(node: Select, index: int) -> int | None:
    """The input that the conditions on input `index` restrict; None if the rule does not apply.

    Input `index` has one row, none of its columns is output, and its conditions name one other.
    """
    alias = node.inputs[index].alias
    if not _is_single(node.inputs[index].node):
        return None
    if any(alias in output.expr.aliases for output in node.outputs):
        return None
    about = {name for expr in node.where if alias in expr.aliases for name in expr.aliases}
    about.discard(alias)
    others = [at for at, child in enumerate(node.inputs) if at != index]
    if len(about) > 1:
        return None
    return next((at for at in others if not about or node.inputs[at].alias in about), None)


def _is_single(node: Node) -> bool:
    if isinstance(node, Scan):
        return node.table == CLOCK
    if isinstance(node, Aggregate):
        return not node.keys and node.session is None
    if isinstance(node, Select) and len(node.inputs) == 1 and not node.where:
        return _is_single(node.inputs[0].node)
    return False


def without(node: Select, index: int) -> Select:
    """The join without input `index` and its conditions."""
    alias = node.inputs[index].alias
    inputs = tuple(child for at, child in enumerate(node.inputs) if at != index)
    where = tuple(expr for expr in node.where if alias not in expr.aliases)
    return Select(inputs, where, node.outputs)


def flips(
    node: Select, index: int, start: Input, frame: str, source: Source, emitter: Emitter
) -> str:
    """The rows of `start` that the change of input `index` inserts (+1) or retracts (-1)."""
    alias = node.inputs[index].alias
    columns = node.inputs[index].node.columns
    picked = [
        f"max(IF({WEIGHT} {sign} 0, {escape(quote(column))}, NULL)) AS "
        f"{escape(quote(f'{moment}_{column}'))}"
        for column in columns
        for moment, sign in (("old", "<"), ("new", ">"))
    ]
    moved = emitter.collect(
        "moved",
        emitter.query("moves", f"SELECT {', '.join(picked)}\nFROM {{{frame}}}"),
    )

    def at(moment: str) -> Callable[[Ref], str]:
        return lambda ref: (
            f"{_MOVED}.{escape(quote(f'{moment}_{ref[1]}'))}" if ref[0] == alias else dotted(ref)
        )

    terms = [expr for expr in node.where if alias in expr.aliases]
    old, new = (
        f"coalesce({' AND '.join(term(expr, at(moment)) for expr in terms) or 'true'}, false)"
        for moment in ("old", "new")
    )
    own = escape(quote(start.alias))
    sql = (
        f"SELECT /*+ BROADCAST({_MOVED}) */ {listed(start.node.columns, own)}, "
        f"CAST(IF({new}, 1, -1) AS BIGINT) AS {WEIGHT}\n"
        f"FROM {relation(start, source)}\nCROSS JOIN {{{moved}}} {_MOVED}\nWHERE {old} <> {new}"
    )
    return emitter.query("flipped", sql, (frame,))
