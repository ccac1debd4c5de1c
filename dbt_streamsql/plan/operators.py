"""What `explain` shows of each operator of a view."""

from __future__ import annotations

from dataclasses import dataclass

from dbt_streamsql.plan.state import State

APPEND, UPSERT, RETRACT = "append", "upsert", "retract"
"""The form of a change: only inserts; one new row per key; retractions and inserts."""


@dataclass(frozen=True)
class Operator:
    """One operator: its depth in the tree, what it is, and how its change is computed.

    `changelog` holds while the inputs only gain rows; when they lose or change rows it is
    `retract` except where it is `upsert`. `keys` identify its rows (empty: none are known),
    `state` is what is stored for it in addition to the view's rows, `strategy` how and why. `id`
    is its number in the plan (0: it is not an operator of the query), `states` what it remembers
    of each input and for how long.
    """

    depth: int
    name: str
    detail: str
    changelog: str
    keys: tuple[str, ...]
    state: str
    strategy: str
    id: int = 0
    states: tuple[State, ...] = ()

    @property
    def ttl(self) -> str:
        """How long it keeps state, and the config entry that sets it, for several inputs in order
        ('' = it has no state)."""
        lengths = [s.lasts + (f" by {s.said}" if s.said else "") for s in self.states]
        return lengths[0] if len(set(lengths)) == 1 else ", ".join(lengths)


HEADINGS = ("id", "operator", "changelog", "key", "ttl", "state", "strategy")
"""The columns of a table of operators."""


def cells(operators: tuple[Operator, ...]) -> list[tuple[str, ...]]:
    """The operators as rows of texts under `HEADINGS`, each below the one that reads it."""
    return [
        (
            str(item.id or "-"),
            f"{'  ' * item.depth}{item.name} {item.detail}".rstrip(),
            item.changelog,
            ", ".join(item.keys) or "-",
            item.ttl or "-",
            item.state or "-",
            item.strategy,
        )
        for item in operators
    ]


def print_operators(operators: tuple[Operator, ...]) -> str:
    """The operators as an aligned table."""
    rows = [HEADINGS, *cells(operators)]
    widths = [max(len(row[at]) for row in rows) for at in range(len(HEADINGS) - 1)]
    return "\n".join(
        "  ".join(
            [*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[-1]]
        )
        for row in rows
    )
