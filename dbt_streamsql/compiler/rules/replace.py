"""GROUP BY at the top of a view that does not fold (HAVING, DISTINCT aggregates, sums of floats).

For K = the keys in the change, the rows of K in the view become γ(R' restricted to K): a group
depends on the rows of its key alone. The old rows are read from the view itself, not recomputed.
"""

from __future__ import annotations

from dataclasses import replace

from dbt_streamsql.compiler.emit import Emitter
from dbt_streamsql.compiler.render import aliased, indent, select
from dbt_streamsql.compiler.rules import delta as delta_of
from dbt_streamsql.compiler.rules.aggregate import restricted, touched
from dbt_streamsql.compiler.rules.view import View, grouped_view
from dbt_streamsql.plan.expression import dotted, escape, ident
from dbt_streamsql.plan.relational import Output, Select
from dbt_streamsql.plan.steps import Replace


def plan(view: View, emitter: Emitter) -> View:
    """Emit the recomputation of the touched groups."""
    node, block, key = grouped_view(view)
    changed = delta_of(node.input, emitter)
    keys = touched(node, changed, emitter) if node.keys else ""
    outputs = (
        *(
            Output(column.name, output.expr)
            for output, column in zip(block.outputs, view.columns, strict=True)
        ),
        *key.hidden,
    )
    shown = Select(block.inputs, block.where, outputs)
    alias = escape(ident(block.inputs[0].alias))
    inner = f"(\n{indent(restricted(node, emitter.after, keys))}\n) {alias}"
    rows = emitter.query("new_rows", select(shown, [inner]), () if keys else (changed,))
    renamed = ", ".join(
        aliased(dotted(("k", old)), new) for old, new in zip(node.keys, key.columns, strict=True)
    )
    stored = (
        emitter.query("stored_keys", f"SELECT {renamed}\nFROM {{{keys}}} k")
        if keys
        else emitter.query("stored_keys", "SELECT 1 AS one", (changed,))
    )
    emitter.steps.append(Replace(rows, stored, key.columns))
    full = shown if key.hidden else None
    return replace(view, strategy="replace", key=key.columns, full=full)
