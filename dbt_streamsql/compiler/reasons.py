"""Why a query cannot be maintained from changes: operator, place, reason, and what would help."""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp


@dataclass(frozen=True)
class Reason:
    """One obstacle, with its 1-based place in the SQL (0 = unknown)."""

    operator: str
    why: str
    rewrite: str = ""
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        spot = f" (line {self.line}, column {self.column})" if self.line else ""
        return f"{self.operator}{spot}: {self.why}" + (f"; {self.rewrite}" if self.rewrite else "")


class Unsupported(Exception):
    """Raised by a pass that meets a `Reason`; the view is then refreshed in full."""

    def __init__(self, reason: Reason) -> None:
        self.reason = reason
        super().__init__(str(reason))


def place(node: exp.Expr) -> tuple[int, int]:
    """Line and column of the first token below `node` that remembers where it stood."""
    for part in node.walk():
        if "line" in part.meta:
            length = part.meta["end"] - part.meta["start"]
            return int(part.meta["line"]), max(1, int(part.meta["col"]) - int(length))
    return 0, 0


def obstacle(node: exp.Expr, operator: str, why: str, rewrite: str = "") -> Unsupported:
    line, column = place(node)
    return Unsupported(Reason(operator, why, rewrite, line, column))
