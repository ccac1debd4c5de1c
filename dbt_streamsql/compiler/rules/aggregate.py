"""GROUP BY (and DISTINCT) below other operators: the touched groups are recomputed.

With K = the keys in the change of the input, and γ the grouping,

    dγ = γ(R' restricted to K) − γ(R restricted to K)

is exact for every deterministic aggregate, because a group depends on the rows of its key alone.
Without keys there is one group, recomputed whenever the input changed.
"""

from __future__ import annotations

from dbt_streamsql.compiler.emit import Emitter
from dbt_streamsql.compiler.render import Source, grouping, indent, render
from dbt_streamsql.compiler.rules import delta as delta_of
from dbt_streamsql.plan.expression import escape, ident
from dbt_streamsql.plan.relational import Aggregate
from dbt_streamsql.plan.schema import WEIGHT


def delta(node: Aggregate, emitter: Emitter) -> str:
    """`−old +new` for each touched group, consolidated."""
    changed = delta_of(node.input, emitter)
    keys = touched(node, changed, emitter) if node.keys else ""
    when = () if keys else (changed,)
    columns = [escape(ident(column)) for column in node.columns]
    parts = []
    for wanted, source, weight in (("gained", emitter.after, 1), ("lost", emitter.before, -1)):
        inner = restricted(node, source, keys)
        sql = f"SELECT {', '.join(columns)}, CAST({weight} AS BIGINT) AS {WEIGHT}\n"
        parts.append(emitter.query(wanted, f"{sql}FROM (\n{indent(inner)}\n)", when))
    return emitter.consolidated("groups", emitter.union("both", parts), columns)


def touched(node: Aggregate, changed: str, emitter: Emitter) -> str:
    """The keys of the groups that a change can touch, computed once."""
    keys = ", ".join(escape(ident(key)) for key in node.keys)
    return emitter.collect(
        "keys", emitter.query("key_rows", f"SELECT DISTINCT {keys}\nFROM {{{changed}}}")
    )


def restricted(node: Aggregate, source: Source, keys: str, calls: list[str] | None = None) -> str:
    """The groups of `node` whose key is in the frame `keys` ('' = all), as SQL."""
    chosen = [call.sql("i") for call in node.calls] if calls is None else calls
    inner = f"(\n{indent(render(node.input, source))}\n)"
    if not keys:
        return grouping(node, f"{inner} i", chosen)
    on = " AND ".join(f"i.{escape(ident(key))} <=> k.{escape(ident(key))}" for key in node.keys)
    from_ = (
        f"(\n  SELECT /*+ BROADCAST(k) */ i.*\n{indent('FROM ' + inner)} i\n"
        f"  LEFT SEMI JOIN {{{keys}}} k ON {on}\n) i"
    )
    return grouping(node, from_, chosen)
