"""GROUP BY below other operators, of aggregates that are sums over signed rows.

The old values of the touched groups are computed once, from the rows before the epoch; the new
values are the old ones plus the change. Groups whose values are unchanged are left out.
"""

from __future__ import annotations

from dataclasses import replace

from dbt_streamsql.compiler.codegen.emitter import Emitter
from dbt_streamsql.compiler.codegen.render_sql import indent
from dbt_streamsql.compiler.rules.components import (
    ALL,
    Components,
    formula,
    group_changes,
    unfolded,
)
from dbt_streamsql.compiler.rules.keyed import restricted
from dbt_streamsql.plan.algebra.expression import escape
from dbt_streamsql.plan.algebra.relational import Aggregate, Keyed
from dbt_streamsql.plan.algebra.schema import WEIGHT
from dbt_streamsql.plan.program.fold_values import fold_values
from dbt_streamsql.plan.program.steps import Derived, Fold
from dbt_streamsql.quoting import quote


def applies(node: Keyed) -> bool:
    """Whether all aggregates are sums over signed rows."""
    return (
        isinstance(node, Aggregate) and node.session is None and not any(map(unfolded, node.calls))
    )


def delta(node: Aggregate, emitter: Emitter) -> str:
    """`−old +new` for each group whose values change."""
    state = Components({replace(call, name=""): call.name for call in node.calls})
    alive = state.component(ALL, "add")
    formulas = {call.name: formula(call, state, alive, bool(node.keys)) for call in node.calls}
    stored = {component.column for component in state.components}
    derived = tuple(
        Derived(call.name, f"CAST({formulas[call.name]} AS {call.type})")
        for call in node.calls
        if call.name not in stored
    )
    groups = group_changes(node, node.keys, state, emitter)
    spec = Fold(groups, node.keys, tuple(state.components), derived, alive)
    calls = (*node.calls, *(call for _, call in state.hidden))
    old = restricted(replace(node, calls=calls), emitter.before, groups if node.keys else "")
    return emitter.query("regrouped", _moved(node, spec, old))


def _moved(node: Aggregate, spec: Fold, old: str) -> str:
    """Both rows of each group, first side by side, then as two rows."""
    new = fold_values(spec, "t", "s")
    places = range(len(node.calls))
    keys = [f"s.{escape(quote(key))} AS k{at}" for at, key in enumerate(node.keys)]
    values = [
        f"{escape(new[call.name])} AS n{at}, t.{escape(quote(call.name))} AS o{at}"
        for at, call in enumerate(node.calls)
    ]
    lives = f"{escape(new[spec.alive])} > 0" if node.keys else "true"
    lived = f"t.{escape(quote(spec.alive))} IS NOT NULL"
    on = " AND ".join(f"s.{escape(quote(k))} <=> t.{escape(quote(k))}" for k in node.keys)
    items = [f"k{at} AS {escape(quote(key))}" for at, key in enumerate(node.keys)]
    items += [
        f"IF({WEIGHT} > 0, n{at}, o{at}) AS {escape(quote(call.name))}"
        for at, call in enumerate(node.calls)
    ]
    same = " AND ".join(["lives", "lived", *(f"n{at} <=> o{at}" for at in places)])
    both = ", ".join([*keys, *values, f"{lives} AS lives", f"{lived} AS lived"])
    return (
        f"SELECT {', '.join(items)}, {WEIGHT}\nFROM (\n"
        f"  SELECT {both}\n  FROM {{{spec.groups}}} s\n"
        f"  LEFT JOIN (\n{indent(indent(old))}\n  ) t ON {on or 'true'}\n) b\n"
        f"LATERAL VIEW explode(array(-1L, 1L)) v AS {WEIGHT}\n"
        f"WHERE IF({WEIGHT} > 0, lives, lived) AND NOT ({same})"
    )
