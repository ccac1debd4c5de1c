"""Views whose top is computed key by key: groups that do not fold, windows, a LIMIT.

For K = the keys in the change, the rows of K in the view become N(R' restricted to K): they depend
on the rows of their key alone. The old rows are read from the view itself, not recomputed. Without
keys (LIMIT, a global aggregate) all rows of the view are compared with the new ones.
"""

from __future__ import annotations

from dataclasses import replace

from dbt_streamsql.compiler.codegen.emitter import Emitter
from dbt_streamsql.compiler.codegen.render_sql import aliased, indent, select
from dbt_streamsql.compiler.lowering.view import View, keyed_view, refuse_unlike
from dbt_streamsql.compiler.rules import delta as delta_of
from dbt_streamsql.compiler.rules.keyed import restricted, touched
from dbt_streamsql.plan.algebra.expression import dotted, escape
from dbt_streamsql.plan.algebra.relational import (
    Aggregate,
    Output,
    Select,
    keys_of,
    scans,
)
from dbt_streamsql.plan.program.steps import Replace
from dbt_streamsql.quoting import quote


def plan(view: View, emitter: Emitter) -> View:
    """Emit the recomputation of the touched keys."""
    node, block, key = keyed_view(view)
    changed = delta_of(node.input, emitter)
    keys = touched(node, changed, emitter) if keys_of(node) else ""
    if not keys and any(scan.ttl for scan in scans(node)):
        # Without an observed change nothing expires.
        changed = emitter.collect("moved_rows", changed)
    outputs = (
        *(
            Output(column.name, output.expr)
            for output, column in zip(block.outputs, view.columns, strict=True)
        ),
        *key.hidden,
    )
    shown = Select(block.inputs, block.where, outputs)
    alias = escape(quote(block.inputs[0].alias))
    inner = f"(\n{indent(restricted(node, emitter.after, keys))}\n) {alias}"
    rows = emitter.query("new_rows", select(shown, [inner]), () if keys else (changed,))
    renamed = ", ".join(
        aliased(dotted(("k", old)), new)
        for old, new in zip(keys_of(node), key.columns, strict=True)
    )
    stored = (
        emitter.query("stored_keys", f"SELECT {renamed}\nFROM {{{keys}}} k")
        if keys
        else emitter.query("stored_keys", "SELECT 1 AS one", (changed,))
    )
    single = isinstance(node, Aggregate) and node.session is None
    if not single:
        refuse_unlike(view.columns, "distinguishing the rows of a key")
    emitter.steps.append(Replace(rows, stored, key.columns, single))
    full = shown if key.hidden else None
    return replace(view, strategy="replace", key=key.columns, full=full)
