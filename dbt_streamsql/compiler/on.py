"""Sub-queries in the ON of inner joins, as conditions of WHERE.

    σ_p (A × B) ⟕ C ⟕ … = σ_p ((A × B) ⟕ C ⟕ …)        when p reads A and B alone

so what an inner join asks for can be asked later, unless a RIGHT or FULL JOIN comes after it,
which keeps rows that have no partner in A × B.
"""

from __future__ import annotations

from sqlglot import exp


def without_queries_in_on(tree: exp.Query) -> None:
    """Move them, in a tree whose columns are qualified: in WHERE a bare name may be ambiguous."""
    for select in list(tree.find_all(exp.Select)):
        for join in reversed(select.args.get("joins") or []):
            if join.side in ("RIGHT", "FULL"):
                break
            on = join.args.get("on")
            if on is None or join.side or join.method or join.kind not in ("", "INNER"):
                continue
            terms = list(on.flatten()) if isinstance(on, exp.And) else [on]
            asking = [term for term in terms if term.find(exp.Query)]
            if not asking:
                continue
            staying = [term for term in terms if term not in asking]
            join.set("on", exp.and_(*staying) if staying else None)
            if not staying:
                join.set("kind", "CROSS")
            select.where(*asking, copy=False)
