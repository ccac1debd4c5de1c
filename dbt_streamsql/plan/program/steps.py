"""What one epoch does for one view: frozen steps, printed and run from the same objects.

A *frame* is a named relation of the epoch: the change of a table, the result of a query, or a
table before or after the epoch. SQL texts contain `{frame}`. A frame that is known to be empty is
None at run time, and a query over it is not planned.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Literal

from dbt_streamsql.plan.algebra.expression import holes


@dataclass(frozen=True)
class Meeting:
    """Rows of a table are joined where `column` equals `other_column` of the table `other`."""

    column: str
    other: str
    other_column: str


def asked(table: str, meets: Iterable[Meeting], changed: Collection[str]) -> tuple[Meeting, ...]:
    """How changed rows of other tables select rows of `table`; () when some do so another way."""
    ways = tuple(way for way in meets if way.other in changed)
    return ways if {way.other for way in ways} >= set(changed) - {table} else ()


@dataclass(frozen=True)
class Changes:
    """The consolidated signed rows of `table` in this epoch: `columns` and the weight.

    `meets` are the changed tables that the change may be read together with (`State.met`). With a
    `ttl`, deleted rows that were last written more than that many milliseconds ago are left out,
    and a rewritten row is deleted and inserted even if it is unchanged.
    """

    name: str
    table: str
    columns: tuple[str, ...]
    meets: tuple[Meeting, ...] = ()
    ttl: int = 0


@dataclass(frozen=True)
class State:
    """The rows of `table` before (`moment='before'`) or after this epoch.

    `met`: only rows that match a changed row by a `Changes.meets` of the table are needed. With a
    `ttl`, only rows that were written within that many milliseconds, or inserted in this epoch.
    """

    name: str
    table: str
    moment: str
    met: bool = False
    ttl: int = 0


@dataclass(frozen=True)
class Stored:
    """The rows of the view itself before this epoch, with its hidden columns."""

    name: str


KeyKind = Literal["", "key", "unique", "references"]
"""What is known of a column: it is unique by the way its table is kept, or declared keys say that
it is unique, or a foreign key."""


@dataclass(frozen=True)
class Lookup:
    """Of the frame `rows`, at least those whose `column` equals `key` in some row of `asking`.

    `rows` are those of `table` at a `moment`, 'before' or 'after' the epoch. `nulls`: NULL equals
    NULL. `by`: the `column` is the `key` of a maintained table, or declared keys say that it is
    `unique`, or that it `references` the unique column `to` of the table `parent`.
    """

    name: str
    rows: str
    table: str
    moment: str
    column: str
    asking: str
    key: str
    nulls: bool = False
    by: KeyKind = ""
    parent: str = ""
    to: str = ""


@dataclass(frozen=True)
class Query:
    """A query over earlier frames.

    It is not planned when one of them, or of `when`, is empty, or one of `unless` is not.
    """

    name: str
    sql: str
    when: tuple[str, ...] = ()
    unless: tuple[str, ...] = ()

    @property
    def frames(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*holes(self.sql), *self.when, *self.unless)))


@dataclass(frozen=True)
class Union:
    """UNION ALL of the parts that may have rows."""

    name: str
    parts: tuple[str, ...]


@dataclass(frozen=True)
class Collect:
    """Compute a frame once, count it, and keep it for the steps that follow."""

    name: str
    frame: str


@dataclass(frozen=True)
class Apply:
    """Add the signed rows of `frame` (the view's columns and the weight) to the view."""

    frame: str


@dataclass(frozen=True)
class Replace:
    """For each key in the frame `keys`: the view's rows of that key become those of `frame`.

    `single`: there is at most one row for a key, so that equal rows need not be distinguished.
    """

    frame: str
    keys: str
    key: tuple[str, ...]
    single: bool = True


@dataclass(frozen=True)
class Part:
    """The change of one branch of a wide table: the key and these `columns`."""

    frame: str
    columns: tuple[str, ...]


@dataclass(frozen=True)
class Together:
    """The changes of several branches, one row for each key.

    Columns of branches without a change are left out, and are NULL for keys that other branches
    change.
    """

    name: str
    parts: tuple[Part, ...]
    key: tuple[str, ...]


ComponentKind = Literal["add", "least", "greatest", "claims", "cell"]


@dataclass(frozen=True)
class Component:
    """One folded column of the state.

    `column` is where it is stored, `kind` how old (`t`) and change (`s`) combine: `add`, `least`
    or `greatest`; for wide tables `claims`, the rows of the branch named `of` (0 or 1), and
    `cell`, the value written by the branch whose rows the column `of` counts. `null_when_zero`
    names the counter that makes a stored sum NULL.
    """

    column: str
    kind: ComponentKind
    type: str
    null_when_zero: str = ""
    of: str = ""


@dataclass(frozen=True)
class Derived:
    """A visible column computed from components: `sql` contains `{component column}`."""

    column: str
    sql: str


@dataclass(frozen=True)
class Fold:
    """Combine the additive change `groups` with the stored groups.

    `groups` has the key columns, one column per component, and when there is a `least` or
    `greatest` component `__streamsql_lost`: whether the group lost a value. For those groups it
    has the recomputed extrema (`fold_values.exact_column`). `alive` is the component that counts
    the group's rows: at zero the group is removed ('' for the one group of a global aggregate); it
    may be derived from others. `lacking` are components without a column in the groups: they
    keep their values. With a `ttl`, a stored group that was not written for that many milliseconds
    counts as missing; its write time is stored with it (`fold_values.WRITTEN`). The epoch sets the
    limits: groups written before `since` count as missing, others are written at
    `now`, both in microseconds since 1970.
    """

    groups: str
    key: tuple[str, ...]
    components: tuple[Component, ...]
    derived: tuple[Derived, ...]
    alive: str
    lacking: tuple[str, ...] = ()
    ttl: int = 0
    since: int = 0
    now: int = 0


Step = (
    Changes | State | Lookup | Stored | Query | Union | Together | Collect | Apply | Replace | Fold
)
