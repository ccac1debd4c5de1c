"""Why a query cannot be maintained from changes: operator, place, reason, and a rewrite."""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

_VIEW = "view"


@dataclass(frozen=True)
class Reason:
    """One obstacle, with its 1-based place in the SQL (0 = unknown).

    `view`: the view that contains that SQL, when the query only reads it.
    """

    operator: str
    why: str
    rewrite: str = ""
    line: int = 0
    column: int = 0
    view: str = ""

    def __str__(self) -> str:
        place = f"line {self.line}, column {self.column}" if self.line else ""
        spot = " of ".join(part for part in (place, self.view and f"view {self.view}") if part)
        spot = f" ({spot})" if spot else ""
        return f"{self.operator}{spot}: {self.why}" + (f"; {self.rewrite}" if self.rewrite else "")


class Unsupported(Exception):
    """Raised by a pass that finds a `Reason`; the view is then refreshed in full."""

    def __init__(self, reason: Reason) -> None:
        self.reason = reason
        super().__init__(str(reason))


def written_in(view: str, tree: exp.Expr) -> None:
    """Mark every token of a tree with the view that it belongs to."""
    for part in tree.walk():
        if "line" in part.meta:
            part.meta[_VIEW] = view


def obstacle(node: exp.Expr, operator: str, why: str, rewrite: str = "") -> Unsupported:
    """An obstacle at the first token below `node` that has a position."""
    for part in node.walk():
        if "line" in part.meta:
            meta = part.meta
            column = max(1, int(meta["col"]) - int(meta["end"] - meta["start"]))
            view = meta.get(_VIEW, "")
            return Unsupported(Reason(operator, why, rewrite, int(meta["line"]), column, view))
    return Unsupported(Reason(operator, why, rewrite))
