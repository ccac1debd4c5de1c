"""All other views: their signed change is added to their rows, copy by copy."""

from __future__ import annotations

from dataclasses import replace

from dbt_streamsql.compiler.codegen.emitter import Emitter
from dbt_streamsql.compiler.lowering.view import View, refuse_unlike
from dbt_streamsql.compiler.rules import delta as delta_of
from dbt_streamsql.plan.algebra.expression import escape
from dbt_streamsql.plan.algebra.schema import WEIGHT
from dbt_streamsql.plan.program.steps import Apply
from dbt_streamsql.quoting import quote


def plan(view: View, emitter: Emitter) -> View:
    """Emit the change of the whole query, under the view's own column names and types."""
    refuse_unlike(view.columns, "retracting single rows")
    changed = delta_of(view.root, emitter)
    items = ", ".join(
        f"CAST({escape(quote(old))} AS {column.type}) AS {escape(quote(column.name))}"
        for old, column in zip(view.root.columns, view.columns, strict=True)
    )
    named = emitter.query("view_rows", f"SELECT {items}, {WEIGHT}\nFROM {{{changed}}}")
    emitter.steps.append(Apply(named))
    return replace(view, strategy="rows")
