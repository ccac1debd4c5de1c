"""Generators (EXPLODE and similar) are linear: a changed row makes its rows, with its weight."""

from __future__ import annotations

from dbt_streamsql.compiler.codegen.emitter import Emitter
from dbt_streamsql.compiler.codegen.render_sql import generate
from dbt_streamsql.compiler.rules import delta as delta_of
from dbt_streamsql.plan.algebra.relational import Generate
from dbt_streamsql.plan.algebra.schema import WEIGHT


def delta(node: Generate, emitter: Emitter) -> str:
    """The generator applied to the changed rows."""
    changed = delta_of(node.input, emitter)
    return emitter.query("generated", generate(node, f"{{{changed}}} i", f"i.{WEIGHT}"))
