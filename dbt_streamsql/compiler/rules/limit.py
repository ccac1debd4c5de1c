"""ORDER BY … LIMIT at the top of a view: the stored rows are enough to compute the new ones.

The view holds the first n rows V of R. Up to the last row of V, nothing of R is unknown, so with
the change dR cut at that row

    V' = the first n rows of V + dR    if these are at least n, or V was all of R

Otherwise rows from below must move up, and the whole query is run.
"""

from __future__ import annotations

from dataclasses import replace

from dbt_streamsql.compiler.codegen.emitter import Emitter
from dbt_streamsql.compiler.codegen.render_sql import (
    aliased,
    indent,
    keyed,
    listed,
    order_of,
    render,
)
from dbt_streamsql.compiler.codegen.render_sql import select as select_sql
from dbt_streamsql.compiler.lowering.view import View, keyed_view, refuse_incomparable
from dbt_streamsql.compiler.rules import delta as delta_of
from dbt_streamsql.plan.algebra.expression import Expr, escape
from dbt_streamsql.plan.algebra.relational import (
    Keyed,
    Limit,
    Output,
    Select,
)
from dbt_streamsql.plan.algebra.schema import HIDDEN_PREFIX, WEIGHT
from dbt_streamsql.plan.program.steps import Replace
from dbt_streamsql.quoting import quote

_HELD, _PLACE, _EDGE, _NUMBER = (
    f"{HIDDEN_PREFIX}{name}" for name in ("held", "place", "edge", "number")
)


def applies(node: Keyed, select: Select) -> bool:
    """Whether the view holds all the first rows, and all their columns are sortable."""
    if not isinstance(node, Limit) or node.limit is None or node.offset or select.where:
        return False
    return set(node.columns) <= set(node.sortable)


def plan(view: View, emitter: Emitter) -> View:
    """Emit the merge of the stored rows with the change, and the whole query as a fallback."""
    node, block, _ = keyed_view(view)
    assert isinstance(node, Limit)
    refuse_incomparable(view.columns, "distinguishing rows")
    shown, hidden = _places(node, block, view)
    outputs = (
        *(
            Output(column.name, output.expr)
            for output, column in zip(block.outputs, view.columns, strict=True)
        ),
        *hidden,
    )
    changed = emitter.collect("moved_rows", delta_of(node.input, emitter))
    stored = emitter.stored()
    known = _known(node, changed, stored, shown)
    lacking = emitter.collect(
        "lacking",
        emitter.query(
            "lacking_rows",
            f"SELECT 1 AS one\nFROM (SELECT count(*) AS held FROM {stored}) v\n"
            f"CROSS JOIN (\n  SELECT coalesce(sum({WEIGHT}), 0) AS found FROM (\n"
            f"{indent(indent(known))}\n  ) f\n) c\n"
            f"WHERE v.held >= {node.limit} AND c.found < {node.limit}",
        ),
    )
    copies = (
        f"(\n  SELECT {listed(node.columns)}\n  FROM (\n{indent(indent(known))}\n  ) f\n"
        f"  LATERAL VIEW explode(sequence(1, CAST(least({WEIGHT}, {node.limit}) AS INT))) v"
        f" AS {_NUMBER}\n) i"
    )
    top = Select(block.inputs, block.where, outputs)
    alias = escape(quote(block.inputs[0].alias))

    def first(rows: str) -> str:
        return select_sql(top, [f"(\n{indent(keyed(node, rows))}\n) {alias}"])

    whole = f"(\n{indent(render(node.input, emitter.after))}\n) i"
    merged = emitter.query("merged", first(copies), (), (lacking,))
    again = emitter.query("asked_again", first(whole), (lacking,))
    every = emitter.query("stored_keys", "SELECT 1 AS one", (changed,))
    emitter.steps.append(Replace(emitter.union("new_rows", [merged, again]), every, (), False))
    return replace(view, strategy="replace", key=(), full=top if hidden else None)


def _places(node: Limit, block: Select, view: View) -> tuple[dict[str, str], tuple[Output, ...]]:
    """Where each column of the rows is stored, and which of those are hidden."""
    shown: dict[str, str] = {}
    for output, column in zip(block.outputs, view.columns, strict=True):
        ref = output.expr.as_column
        if ref is not None:
            shown.setdefault(ref[1], column.name)
    alias = block.inputs[0].alias
    missing = [name for name in node.columns if name not in shown]
    hidden = tuple(Output(f"{HIDDEN_PREFIX}row_{n}", Expr.column(alias, n)) for n in missing)
    return shown | dict(zip(missing, (output.name for output in hidden), strict=True)), hidden


def _known(node: Limit, changed: str, stored: str, shown: dict[str, str]) -> str:
    """The known rows of R', with their counts: all up to the last row of V."""
    columns = listed(node.columns)
    stored_rows = ", ".join(
        aliased(f"s.{escape(quote(shown[name]))}", name) for name in node.columns
    )
    return (
        f"SELECT {columns}, sum({WEIGHT}) AS {WEIGHT}\nFROM (\n"
        f"  SELECT *, max(IF({_HELD}, {_PLACE}, NULL)) OVER () AS {_EDGE},"
        f" sum(IF({_HELD}, 1, 0)) OVER () AS {_NUMBER}\n"
        f"  FROM (\n    SELECT i.*, rank() OVER (ORDER BY {order_of(node)}) AS {_PLACE}\n"
        f"    FROM (\n"
        f"      SELECT {stored_rows}, 1L AS {WEIGHT}, true AS {_HELD} FROM {stored} s\n"
        f"      UNION ALL\n"
        f"      SELECT {columns}, {WEIGHT}, false AS {_HELD} FROM {{{changed}}}\n"
        f"    ) i\n  ) p\n) e\n"
        f"WHERE {_NUMBER} < {node.limit} OR {_PLACE} <= {_EDGE}\n"
        f"GROUP BY {columns}\nHAVING sum({WEIGHT}) > 0"
    )
