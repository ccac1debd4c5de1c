"""A part of a view's query whose rows can be stored in a table of their own: a state table.

The table is a view itself, hidden from users and kept by the same barriers. Views with equal parts
share it (FLIP-276, "How to share the state between jobs").
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from dbt_streamsql.errors import Place, StreamSqlError
from dbt_streamsql.plan.algebra.schema import HIDDEN_PREFIX

STATE_TABLE = f"{HIDDEN_PREFIX}state_"
"""How the names of state tables begin; the id of the part follows."""


@dataclass(frozen=True)
class StoredPart:
    """A part of a query.

    `id`: equal for parts with the same rows, whatever a view calls their columns. `operators`: the
    numbers of its topmost operator, wherever the query has it (see `Operator.id`). `sql`: the
    query of its rows, with columns `c0`, `c1` …; `tables`: what it reads. `stored`: its state
    table ('' while its rows are computed from `tables` in each epoch). `keys`: the operator is a
    join, and the rows are the distinct keys of a side of it; `declared`: a declared key may find
    them in the changes, if the table `parent` changes with them ('': it needs none). `join`: the
    rows are those of a join; `keyed`: whose keys can be stored instead. `copy`: the rows are what
    a join reads of a table, ordered by the column that joins, `c0`. `around`: wherever the query
    has it, the ids of the parts that make it needless when they are stored.
    """

    id: str
    operators: tuple[int, ...]
    sql: str
    tables: tuple[str, ...]
    stored: str = ""
    keys: bool = False
    declared: bool = False
    join: bool = False
    around: tuple[tuple[str, ...], ...] = ((),)
    parent: str = ""
    keyed: bool = False
    copy: bool = False

    @property
    def table(self) -> str:
        """The name of its state table in any schema."""
        return STATE_TABLE + self.id

    def is_within(self, stored: Collection[str]) -> bool:
        """Whether only parts that are `stored` need its rows."""
        return all(any(outer in stored for outer in each) for each in self.around)


State = str | tuple[int, ...]
"""Which parts of a view's query are stored: one of `STATES`, or those with these operators."""

STATES = ("auto", "none", "all")
"""auto: those where storing costs less than it saves. none: all are computed from the inputs in
each epoch."""


def state_of(given: object, place: Place) -> State:
    """A config as `State`. Error: CONFIG_INVALID."""
    if isinstance(given, str) and given in STATES:
        return given
    if isinstance(given, list | tuple) and all(type(each) is int and each > 0 for each in given):
        return tuple(sorted(set(given)))
    raise StreamSqlError(
        "CONFIG_INVALID",
        "`state` does not say which parts of the query are stored",
        given=repr(given),
        allowed=f"{', '.join(STATES)}, or a list of the numbers of operators, such as [3, 5]",
        hint="`explain` shows the numbers of the operators that can be stored",
        place=place,
    )


PlaceParts = Callable[[Sequence[StoredPart]], dict[str, str]]
"""Which of these parts are stored, and where: id -> table."""


def nowhere(_: Sequence[StoredPart]) -> dict[str, str]:
    """No part is stored."""
    return {}


def is_state_table(table: str) -> bool:
    """Whether a table has the name of a state table."""
    return table.rpartition(".")[2].startswith(STATE_TABLE)
