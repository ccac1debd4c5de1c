"""GROUP BY, DISTINCT, windows and LIMIT below other operators: the touched keys are recomputed.

With K = the keys in the change of the input, and N the operator,

    dN = N(R' restricted to K) − N(R restricted to K)

is exact for every deterministic aggregate or window function, because the result of N for a key
depends on the rows of that key alone. The key of a grouping is its columns, the key of a window
its PARTITION BY. Without keys (a global aggregate, a LIMIT) everything is recomputed when the
input changes.
"""

from __future__ import annotations

from dbt_streamsql.compiler.codegen.emitter import Emitter
from dbt_streamsql.compiler.codegen.render_sql import (
    Source,
    indent,
    keyed,
    listed,
    render,
)
from dbt_streamsql.compiler.codegen.restrict_to_keys import Link, restrict
from dbt_streamsql.compiler.rules import delta as delta_of
from dbt_streamsql.plan.algebra.expression import escape
from dbt_streamsql.plan.algebra.relational import Aggregate, Keyed, keys_of
from dbt_streamsql.plan.algebra.schema import WEIGHT, Column
from dbt_streamsql.quoting import quote


def delta(node: Keyed, emitter: Emitter) -> str:
    """`−old +new` for each touched key, consolidated."""
    changed = delta_of(node.input, emitter)
    keys = touched(node, changed, emitter) if keys_of(node) else ""
    when = () if keys else (changed,)
    parts = []
    for wanted, source, weight in (("gained", emitter.after, 1), ("lost", emitter.before, -1)):
        inner = restricted(node, source, keys)
        sql = f"SELECT {listed(node.columns)}, CAST({weight} AS BIGINT) AS {WEIGHT}\n"
        parts.append(emitter.query(wanted, f"{sql}FROM (\n{indent(inner)}\n)", when))
    both = emitter.union("both", parts)
    return emitter.consolidated("groups", both, node.columns, unlike(node))


def unlike(node: Keyed) -> dict[str, str]:
    """The columns of a node that Spark cannot compare, with their types."""
    if isinstance(node, Aggregate):
        made = (Column(call.name, call.type) for call in node.calls)
        return {column.name: column.type for column in made if not column.is_comparable}
    return dict(node.unlike)


def touched(node: Keyed, changed: str, emitter: Emitter) -> str:
    """The keys that a change can touch, computed once."""
    sql = f"SELECT DISTINCT {listed(keys_of(node))}\nFROM {{{changed}}}"
    return emitter.collect("keys", emitter.query("key_rows", sql))


def restricted(node: Keyed, source: Source, keys: str) -> str:
    """The node for the keys in the frame `keys` ('' = all), as SQL."""
    if not keys:
        return keyed(node, f"(\n{indent(render(node.input, source))}\n) i")
    cut = restrict(node.input, keys, {key: Link(key) for key in keys_of(node)})
    inner = f"(\n{indent(render(cut, source))}\n)"
    on = " AND ".join(
        f"i.{escape(quote(key))} <=> k.{escape(quote(key))}" for key in keys_of(node)
    )
    from_ = (
        f"(\n  SELECT /*+ BROADCAST(k) */ i.*\n{indent('FROM ' + inner)} i\n"
        f"  LEFT SEMI JOIN {{{keys}}} k ON {on}\n) i"
    )
    return keyed(node, from_)
