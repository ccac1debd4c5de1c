"""Random queries of the whole language: every operator may stand under and over every other.

An operator reads its children with `children`, which notes the pair (operator, child). A view
starts from a chain drawn from all of them, so that rare ones come up as often as frequent ones.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random

from tests.differential.duck_terms import FAMILIES, JOINABLE, KINDS, Col, Cols, call, predicate

_COLUMN = re.compile(r"\w+\.[a-z]\w*")


@dataclass(frozen=True)
class Rel:
    """A SELECT and its columns by name."""

    sql: str
    cols: Cols


@dataclass(frozen=True)
class Source:
    """An item of FROM and its columns, each with its alias."""

    sql: str
    cols: Cols
    alias: str


Tables = Mapping[str, Sequence[tuple[str, str]]]
"""Table -> columns with Spark types."""


class Queries:
    """Builds one view; `pairs` counts (outer, inner) operators, `view` and `scan` among them."""

    def __init__(self, random: Random, tables: Tables, operators: Operators) -> None:
        self.random = random
        self.tables = tables
        self.operators = operators
        self.pairs: Counter[tuple[str, str]] = Counter()
        self._names = 0
        self._forced: list[str] = []
        self._outer = "view"

    def view(self) -> str:
        """The text of a view."""
        names, length = tuple(self.operators), self.random.choice((1, 2, 2, 2, 3, 3, 4))
        self._forced = [self.random.choice(names) for _ in range(length)]
        return self._operator(self.random.choice((1, 2, 2, 3))).sql

    # -- children ----------------------------------------------------------------------------

    def children(self, count: int, depth: int) -> list[Source]:
        """Sources of an operator; one of them gets the operator that was asked for."""
        forced, self._forced = self._forced, []
        chosen = self.random.randrange(count)
        made = []
        for number in range(count):
            self._forced = forced if number == chosen else []
            made.append(self.source(depth - 1))
        return made

    def child(self, depth: int) -> Source:
        return self.children(1, depth)[0]

    def source(self, depth: int) -> Source:
        """A table or a sub-query under a new alias."""
        alias = self.name("r")
        if self._forced or (depth > 0 and self.random.random() < 0.55):
            rel = self._operator(depth)
            return Source(f"({rel.sql}) {alias}", under(alias, rel.cols), alias)
        self.pairs[self._outer, "scan"] += 1
        table = self.random.choice(tuple(self.tables))
        columns = tuple(
            Col(name, KINDS[type_.removesuffix(" not null")]) for name, type_ in self.tables[table]
        )
        return Source(f"lake.s.{table} {alias}", under(alias, columns), alias)

    def _operator(self, depth: int) -> Rel:
        name = self._forced.pop(0) if self._forced else self.random.choice(tuple(self.operators))
        self.pairs[self._outer, name] += 1
        outer, self._outer = self._outer, name
        try:
            return self.operators[name](self, depth)
        finally:
            self._outer = outer

    # -- parts -------------------------------------------------------------------------------

    def name(self, prefix: str) -> str:
        self._names += 1
        return f"{prefix}{self._names}"

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def pick(self, cols: Cols, most: int = 4) -> list[Col]:
        """Some of the columns, joinable ones more likely."""
        count = min(len(cols), self.random.choice((2, 2, 3, most)))
        good = [col for col in cols if col.kind in JOINABLE]
        if len(good) >= count and self.chance(0.75):
            return self.random.sample(good, count)
        return self.random.sample(cols, count)

    def select(self, items: Sequence[Col], rest: str, word: str = "") -> Rel:
        """`SELECT items rest`, each item under a new name; columns keep theirs at times."""
        named: list[tuple[Col, str]] = []
        kept = self.chance(0.2)
        for item in items:
            own = item.text.rpartition(".")[2] if _COLUMN.fullmatch(item.text) else ""
            free = own and own not in {name for _, name in named}
            named.append((item, own if kept and free else self.name("c")))
        listed = ", ".join(f"{item.text} AS {name}" for item, name in named)
        return Rel(
            f"SELECT {word}{listed} {rest}", tuple(Col(name, item.kind) for item, name in named)
        )

    def where(self, cols: Cols, share: float = 0.3) -> str:
        return f" WHERE {predicate(self.random, cols)}" if self.chance(share) else ""

    def keys(self, cols: Cols, most: int = 2) -> list[Col]:
        usable = [col for col in cols if col.kind in JOINABLE and col.kind != "dbl"] or list(cols)
        return self.random.sample(usable, min(len(usable), self.random.choice((1, 1, most))))

    def order(self, cols: Cols) -> str:
        """A total order: rows that tie are equal in all that the query can see."""
        listed = self.random.sample(cols, len(cols))
        words = ("", "", " DESC", " DESC NULLS FIRST", " NULLS LAST")
        return ", ".join(f"{col.text}{self.random.choice(words)}" for col in listed)

    def calls(self, cols: Cols, family: str = "", most: int = 3) -> list[Col]:
        made = [call(self.random, cols, family or "basic")]
        for _ in range(self.random.randrange(most)):
            share = self.random.random()
            other = family if share < 0.3 else self.random.choice(FAMILIES)
            made.append(call(self.random, cols, other if family and share < 0.5 else "basic"))
        return made


def under(alias: str, cols: Cols) -> Cols:
    return tuple(Col(f"{alias}.{col.text}", col.kind) for col in cols)


Operator = Callable[[Queries, int], Rel]
Operators = Mapping[str, Operator]
