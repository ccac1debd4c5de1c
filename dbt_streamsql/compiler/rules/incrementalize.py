"""Choose how the top of a view applies a change; what is below it has `delta` (`__init__.py`)."""

from __future__ import annotations

from dbt_streamsql.compiler.codegen.emitter import Emitter
from dbt_streamsql.compiler.lowering.view import (
    View,
    refuse_collated,
    refuse_incomparable,
    top,
)
from dbt_streamsql.compiler.rules import branches, fold, limit, replace, rows
from dbt_streamsql.plan.algebra.relational import Aggregate, Branches, scans
from dbt_streamsql.plan.algebra.schema import Column


def incrementalize(view: View, key_types: tuple[Column, ...], emitter: Emitter) -> View:
    """Emit the program of `view`; raises `Unsupported`.

    `key_types` are the keys of the top with their types (empty when it has none).
    """
    refuse_collated((*view.columns, *key_types))
    if isinstance(view.root, Branches):
        return branches.plan(view, emitter)
    found = top(view.root)
    if found is None:
        return rows.plan(view, emitter)
    node, select = found
    refuse_incomparable(key_types, "GROUP BY or PARTITION BY")
    if isinstance(node, Aggregate) and fold.applies(node, select):
        return fold.plan(view, emitter)
    # The stored rows may include expired ones: only what is still remembered counts.
    if limit.applies(node, select) and not any(scan.ttl for scan in scans(node)):
        return limit.plan(view, emitter)
    return replace.plan(view, emitter)
