"""The branches of a wide table as declared: what each writes, and how conflicts are resolved.

A branch owns the columns that it writes: a NULL is a value of its own, and a missing row has no
effect. For a column that several branches write, `merge`, `sequence_by` or `precedence` determine
its value.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from dbt_streamsql.errors import Place, StreamSqlError
from dbt_streamsql.plan.algebra.relational import Merge
from dbt_streamsql.plan.algebra.schema import HIDDEN_PREFIX, WEIGHT

LAST = ("last_value", "last_non_null_value")
"""Merge functions that need an order of the branches."""

FUNCTIONS = (*LAST, "sum", "min", "max", "count", "collect", "bool_or", "listagg")
"""The functions that `merge` accepts for a column."""

ANY = "any"
ANCHOR = "anchor:"
_NAME = re.compile(r"\w[\w ]*")


@dataclass(frozen=True)
class Branch:
    """One `INSERT INTO wide (columns) query`; `columns` names those of the query by position.

    They hold the key. `b.c` is the field c of the column b.
    """

    name: str
    sql: str
    columns: tuple[str, ...]


@dataclass(frozen=True)
class Wide:
    """A wide table: its `key`, its branches, and its conflict rules.

    `sequence_by`: (column, the columns that it orders), with none listed: all shared columns.
    `row_lifetime`: `any`, or `anchor:` and the branch whose keys define the rows.
    """

    key: tuple[str, ...]
    branches: tuple[Branch, ...]
    merge: Mapping[str, str] = field(default_factory=dict)
    sequence_by: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    precedence: tuple[str, ...] = ()
    row_lifetime: str = ANY
    reuse_sink: bool = True

    @property
    def anchor(self) -> str:
        """The branch whose keys define the rows ('' = those of any branch)."""
        return self.row_lifetime.removeprefix(ANCHOR) if self.row_lifetime != ANY else ""

    def targets(self, branch: Branch) -> tuple[str, ...]:
        """The columns that a branch writes, other than the key."""
        return tuple(column for column in branch.columns if column not in self.key)

    def writers(self) -> dict[str, tuple[str, ...]]:
        """Each column other than the key, with the names of the branches that write it."""
        found: dict[str, tuple[str, ...]] = {}
        for branch in self.branches:
            for column in self.targets(branch):
                found[column] = (*found.get(column, ()), branch.name)
        return found

    def sequences(self, branch: Branch) -> tuple[str, ...]:
        """The columns that order several rows of one key within a branch; the last row wins."""
        return tuple(column for column in self.sequence_by if column in branch.columns)

    def merges(self) -> tuple[Merge, ...]:
        """How each column that is not owned by one branch gets its value."""
        found = []
        for column, names in self.writers().items():
            sequence = self._sequence_of(column)
            function = self.merge.get(column, "")
            if column in self.sequence_by and not function:
                function = "max"
            if len(names) == 1 and function in ("", "max", *LAST):
                continue
            ordered = names if sequence else tuple(sorted(names, key=self._rank))
            merged = function or "last_value"
            found.append(Merge(column, merged, ordered, sequence if merged in LAST else ""))
        return tuple(found)

    def _rank(self, name: str) -> int:
        return self.precedence.index(name) if name in self.precedence else len(self.precedence)

    def _sequence_of(self, column: str) -> str:
        for sequence, columns in self.sequence_by.items():
            if column in columns or (not columns and column != sequence):
                return sequence
        return ""

    def spec(self) -> str:
        """Everything but the queries, as JSON; `of_spec` reads it."""
        body = asdict(self)
        for branch in body["branches"]:
            del branch["sql"]
        return json.dumps(body)

    @classmethod
    def of_spec(cls, text: str) -> Wide:
        """A wide table without its queries."""
        body = json.loads(text)
        body["branches"] = tuple(
            Branch(each["name"], "", tuple(each["columns"])) for each in body["branches"]
        )
        body["key"], body["precedence"] = tuple(body["key"]), tuple(body["precedence"])
        body["sequence_by"] = {name: tuple(of) for name, of in body["sequence_by"].items()}
        return cls(**body)

    def check(self, place: Place) -> None:
        """PARTIAL_UPDATE_INVALID, listing everything that is wrong."""
        problems = [*self._wrong_names(), *self._wrong_columns(), *self._wrong_rules()]
        if not problems:
            problems = self._undecided()
        if problems:
            raise StreamSqlError(
                "PARTIAL_UPDATE_INVALID",
                "the branches of a wide table do not fit together",
                given="; ".join(dict.fromkeys(problems)),
                allowed="a column in only one branch, unless `merge`, `sequence_by` or "
                "`precedence` resolves it",
                hint="docs/partial_update.md has an example of each",
                place=place,
            )

    def _wrong_names(self) -> list[str]:
        names = [branch.name for branch in self.branches]
        found = [f"two branches are named `{name}`" for name in _twice(names)]
        found += [
            f"branch name {name!r} may only contain letters, digits and _"
            for name in names
            if not _NAME.fullmatch(name)
        ]
        if not self.branches:
            found.append("there are no branches")
        if not self.key:
            found.append("`key` is missing")
        found += [f"`key` names `{name}` twice" for name in _twice(self.key)]
        found += [f"the key `{name}` is a nested field" for name in self.key if "." in name]
        return found

    def _wrong_columns(self) -> list[str]:
        found = []
        for branch in self.branches:
            of = f"branch `{branch.name}`"
            lacking = [name for name in self.key if name not in branch.columns]
            found += [f"{of} does not write the key `{name}`" for name in lacking]
            found += [f"{of} writes `{name}` twice" for name in _twice(branch.columns)]
            found += [
                f"{of}: `{name}` is a reserved name"
                for name in branch.columns
                if name.lower() == WEIGHT or name.lower().startswith(HIDDEN_PREFIX)
            ]
        paths = [*self.key, *self.writers()]
        found += [
            f"`{path}` is a column and `{other}` is one of its fields"
            for path in paths
            for other in paths
            if other.startswith(f"{path}.")
        ]
        lower = [path.lower() for path in paths]
        found += [f"names that differ only in case: `{name}`" for name in _twice(lower)]
        return found

    def _wrong_rules(self) -> list[str]:
        writers, names = self.writers(), {branch.name for branch in self.branches}
        found = [
            f"`merge` names `{column}`, which no branch writes"
            for column in self.merge
            if column not in writers
        ]
        found += [
            f"`merge: {column}` must be one of {', '.join(FUNCTIONS)}, not {function!r}"
            for column, function in self.merge.items()
            if function not in FUNCTIONS
        ]
        of: list[str] = []
        for sequence, columns in self.sequence_by.items():
            of += columns
            found += [
                f"`sequence_by` names `{column}`, which no branch writes"
                for column in (sequence, *columns)
                if column not in writers
            ]
        found += [f"`sequence_by` names `{column}` twice" for column in _twice(of)]
        found += [
            f"`precedence` names `{name}`, which is not a branch"
            for name in self.precedence
            if name not in names
        ]
        found += [f"`precedence` names `{name}` twice" for name in _twice(self.precedence)]
        if self.row_lifetime != ANY and (
            not self.row_lifetime.startswith(ANCHOR) or self.anchor not in names
        ):
            allowed = ", ".join(f"{ANCHOR}{name}" for name in sorted(names))
            found.append(
                f"`row_lifetime` must be {ANY} or one of {allowed}, not {self.row_lifetime!r}"
            )
        return found

    def _undecided(self) -> list[str]:
        """Columns that several branches write without a rule that picks the winner."""
        found = []
        writers = self.writers()
        for merge in self.merges():
            if merge.function not in LAST or len(merge.branches) == 1:
                continue
            several = " and ".join(f"`{name}`" for name in merge.branches)
            if merge.sequence:
                found += [
                    f"branch `{name}` writes `{merge.column}` without `{merge.sequence}`"
                    for name in merge.branches
                    if name not in writers[merge.sequence]
                ]
            elif not set(merge.branches) <= set(self.precedence):
                found.append(f"{several} write `{merge.column}`, and no rule decides which wins")
        return found


def wide_of(
    key: str | Sequence[str],
    branches: Sequence[Any],
    *,
    merge: Mapping[str, str] | None = None,
    sequence_by: str | Mapping[str, Sequence[str]] | None = None,
    precedence: Sequence[str] = (),
    row_lifetime: str = ANY,
    reuse_sink: bool = True,
    place: Place | None = None,
) -> Wide:
    """The wide table from a caller's arguments, checked.

    A branch is a `Branch`, or (query, columns[, name]) whose query returns the key first.
    Error: PARTIAL_UPDATE_INVALID.
    """
    keys = (key,) if isinstance(key, str) else tuple(key)
    sequences: Mapping[str, Sequence[str]]
    sequences = {sequence_by: ()} if isinstance(sequence_by, str) else sequence_by or {}
    known = [
        each
        if isinstance(each, Branch)
        else Branch(each[2] if len(each) > 2 else f"branch_{number}", each[0], (*keys, *each[1]))
        for number, each in enumerate(branches, 1)
    ]
    wide = Wide(
        keys,
        tuple(known),
        dict(merge or {}),
        {name: tuple(columns) for name, columns in sequences.items()},
        tuple(precedence),
        row_lifetime,
        reuse_sink,
    )
    wide.check(place or Place())
    return wide


def _twice(names: Sequence[str]) -> list[str]:
    return [name for name in dict.fromkeys(names) if list(names).count(name) > 1]
