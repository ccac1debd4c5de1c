"""GROUP BY below other operators, of aggregates that are sums over signed rows.

The old values of the touched groups are computed once, from the rows before the epoch; the new
ones are the old ones and the change. Groups whose values stay are left out.
"""

from __future__ import annotations

from dataclasses import replace

from dbt_streamsql.compiler.emit import Emitter
from dbt_streamsql.compiler.render import indent
from dbt_streamsql.compiler.rules import delta as delta_of
from dbt_streamsql.compiler.rules.components import (
    ALL,
    Components,
    changes_sql,
    extrema,
    formula,
    unfolded,
)
from dbt_streamsql.compiler.rules.keyed import restricted
from dbt_streamsql.plan.expression import escape, ident
from dbt_streamsql.plan.fold_values import LOST, exact_column, fold_values
from dbt_streamsql.plan.relational import Aggregate, Keyed
from dbt_streamsql.plan.schema import WEIGHT
from dbt_streamsql.plan.steps import Derived, Fold


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
    changed = delta_of(node.input, emitter)
    groups = emitter.collect(
        "group_changes",
        emitter.query("group_change_rows", changes_sql(node, node.keys, changed, state)),
    )
    exact = extrema(node, node.keys, state, groups, emitter)
    spec = Fold(groups, exact, node.keys, tuple(state.components), derived, alive)
    calls = (*node.calls, *(call for _, call in state.hidden))
    old = restricted(replace(node, calls=calls), emitter.before, groups if node.keys else "")
    return emitter.query("regrouped", _moved(node, spec, _with_exact(spec, emitter), old))


def _with_exact(spec: Fold, emitter: Emitter) -> str:
    """The change of the groups with the recomputed extrema beside it: a frame."""
    found = [part for part in spec.components if part.kind != "add"]
    if not found:
        return spec.groups
    names = [escape(ident(name)) for name in (*spec.key, *(part.column for part in found))]
    # Without a group that lost a value the extrema are empty, and such a frame is not joined.
    none = emitter.query(
        "no_extrema", f"SELECT {', '.join(names)}\nFROM {{{spec.groups}}}\nWHERE false"
    )
    some = emitter.union("all_extrema", [spec.exact, none])
    items = [
        f"e.{escape(ident(part.column))} AS {escape(exact_column(part, spec))}" for part in found
    ]
    on = [f"s.{escape(ident(key))} <=> e.{escape(ident(key))}" for key in spec.key]
    return emitter.query(
        "with_extrema",
        f"SELECT s.*, {', '.join(items)}\nFROM {{{spec.groups}}} s\n"
        f"LEFT JOIN {{{some}}} e ON {' AND '.join([f's.{LOST}', *on])}",
    )


def _moved(node: Aggregate, spec: Fold, source: str, old: str) -> str:
    """Both rows of each group, side by side, and then one below the other."""
    new = fold_values(spec, "t", "s")
    places = range(len(node.calls))
    keys = [f"s.{escape(ident(key))} AS k{at}" for at, key in enumerate(node.keys)]
    values = [
        f"{escape(new[call.name])} AS n{at}, t.{escape(ident(call.name))} AS o{at}"
        for at, call in enumerate(node.calls)
    ]
    lives = f"{escape(new[spec.alive])} > 0" if node.keys else "true"
    lived = f"t.{escape(ident(spec.alive))} IS NOT NULL"
    on = " AND ".join(f"s.{escape(ident(k))} <=> t.{escape(ident(k))}" for k in node.keys)
    items = [f"k{at} AS {escape(ident(key))}" for at, key in enumerate(node.keys)]
    items += [
        f"IF({WEIGHT} > 0, n{at}, o{at}) AS {escape(ident(call.name))}"
        for at, call in enumerate(node.calls)
    ]
    same = " AND ".join(["lives", "lived", *(f"n{at} <=> o{at}" for at in places)])
    both = ", ".join([*keys, *values, f"{lives} AS lives", f"{lived} AS lived"])
    return (
        f"SELECT {', '.join(items)}, {WEIGHT}\nFROM (\n  SELECT {both}\n  FROM {{{source}}} s\n"
        f"  LEFT JOIN (\n{indent(indent(old))}\n  ) t ON {on or 'true'}\n) b\n"
        f"LATERAL VIEW explode(array(-1L, 1L)) v AS {WEIGHT}\n"
        f"WHERE IF({WEIGHT} > 0, lives, lived) AND NOT ({same})"
    )
