"""UNION ALL is linear: its change is the UNION ALL of the changes."""

from __future__ import annotations

from dbt_streamsql.compiler.codegen.emitter import Emitter
from dbt_streamsql.compiler.rules import delta as delta_of
from dbt_streamsql.plan.algebra.expression import escape
from dbt_streamsql.plan.algebra.relational import UnionAll
from dbt_streamsql.plan.algebra.schema import WEIGHT
from dbt_streamsql.quoting import quote


def delta(node: UnionAll, emitter: Emitter) -> str:
    """Signed rows of all sides, under the first side's names."""
    parts = []
    for side in node.inputs:
        frame = delta_of(side, emitter)
        items = ", ".join(
            f"{escape(quote(old))} AS {escape(quote(new))}" if old != new else escape(quote(new))
            for old, new in zip(side.columns, node.columns, strict=True)
        )
        parts.append(emitter.query("side", f"SELECT {items}, {WEIGHT}\nFROM {{{frame}}}"))
    return emitter.union("both", parts)
