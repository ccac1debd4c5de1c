"""Random wide tables: branches, rules, changes, other branches; and what the row of a key is.

The rows of a branch come from the database, which runs the branch's own query. What the wide row is of
them is said here in Python, key by key, and nowhere in the terms of the compiler.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from random import Random
from typing import Any

ORDERED = ("last_value", "last_non_null_value")
FREE = ("sum", "min", "max", "count", "collect")
COLUMNS = ("k INT", "j STRING", "a INT", "b DECIMAL(8,2)", "s STRING", "seq INT")
KEYS = 8


@dataclass
class World:
    """Some tables, the branches over them, and the rules; all of it follows from the seed."""

    seed: int
    schema: str
    random: Random = field(init=False)
    rows: dict[str, dict[Any, tuple[Any, ...]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.random = Random(self.seed)
        pick = self.random
        self.tables = [f"t{n}" for n in range(pick.randint(2, 4))]
        self.keys = pick.choice((["k"], ["k"], ["k", "j"]))
        self.sequenced = pick.random() < 0.4
        self.branches = [self._branch(n) for n in range(pick.randint(2, 5))]
        self.number = len(self.branches)
        self._rules()

    # -- the tables ----------------------------------------------------------------------------

    def create(self) -> list[str]:
        found = []
        for name in self.tables:
            self.rows[name] = {}
            mode = self.random.choice(("merge-on-read", "copy-on-write"))
            modes = ", ".join(f"'write.{verb}.mode'='{mode}'" for verb in ("delete", "update"))
            found.append(
                f"CREATE TABLE lake.{self.schema}.{name} ({', '.join(COLUMNS)}) "
                f"TBLPROPERTIES ('format-version'='3', {modes})"
            )
        return found + self.changes(first=True)

    def changes(self, *, first: bool = False) -> list[str]:
        """Statements that change some tables; a key is in a table at most once, or, where there is
        a sequence, at most once with each `seq`."""
        pick, found = self.random, []
        for name in self.tables:
            if not first and pick.random() < 0.4:
                continue
            rows = self.rows[name]
            place = f"lake.{self.schema}.{name}"
            gone = [key for key in rows if pick.random() < 0.3]
            if gone and pick.random() < 0.3:
                key = gone[0]
                rows[key] = self._row(key)
                a, b, s = (_sql(rows[key][at]) for at in (2, 3, 4))
                found.append(f"UPDATE {place} SET a = {a}, b = {b}, s = {s} WHERE {_where(key)}")
                gone = gone[1:]
            if gone:
                for key in gone:
                    del rows[key]
                found.append(f"DELETE FROM {place} WHERE {' OR '.join(map(_where, gone))}")
            come = []
            for _ in range(pick.randint(2, 6) if first else pick.randint(0, 4)):
                key = (
                    pick.randrange(KEYS),
                    pick.choice("xy") if len(self.keys) > 1 else "x",
                    pick.randrange(20) if self.sequenced else 0,
                )
                if key not in rows:
                    rows[key] = self._row(key)
                    come.append(rows[key])
            if come:
                values = ", ".join(f"({', '.join(map(_sql, row))})" for row in come)
                found.append(f"INSERT INTO {place} VALUES {values}")
        return found

    def _row(self, key: tuple[Any, ...]) -> tuple[Any, ...]:
        pick = self.random
        at = key[2] if self.sequenced else pick.choice((None, *range(6)))
        return (
            *(key[0], key[1]),
            pick.choice((None, *range(5))),
            pick.choice((None, 0.25, 1, 2.5)),
            pick.choice((None, "p", "q", "")),
            at,
        )

    # -- the branches --------------------------------------------------------------------------

    def _branch(self, number: int) -> dict[str, Any]:
        """A branch whose query gives each key once, or the last of a key by `seq`."""
        pick = self.random
        table = f"lake.{self.schema}.{pick.choice(self.tables)}"
        keys = ", ".join(f"t.{key}" for key in self.keys)
        own = [f"o{number}_{n}" for n in range(pick.randint(0, 2))]
        shared = [name for name in ("x", "y", "r.u", "r.v") if pick.random() < 0.45]
        columns = own + shared
        values = [self._value(name) for name in columns]
        if self.sequenced:
            columns.append("seq")
            values.append("t.seq")
        shape = pick.choice(("plain", "plain", "filter", "join", "group"))
        if shape == "group" and not self.sequenced:
            inner = [f"max({value})" for value in values]
            sql = f"SELECT {', '.join([keys, *inner])} FROM {table} t GROUP BY {keys}"
        elif shape == "join" and not self.sequenced:
            other = f"lake.{self.schema}.{pick.choice(self.tables)}"
            on = " AND ".join(f"t.{key} = d.{key}" for key in self.keys)
            items = [value.replace("t.a", "coalesce(d.a, -1)") for value in values]
            sql = f"SELECT {', '.join([keys, *items])} FROM {table} t LEFT JOIN {other} d ON {on}"
        else:
            where = " WHERE t.a > 1 OR t.s IS NULL" if shape == "filter" else ""
            sql = f"SELECT {', '.join([keys, *values])} FROM {table} t{where}"
        return {"name": f"b{number}", "sql": sql, "columns": columns}

    def _value(self, name: str) -> str:
        if name in ("x", "r.u"):
            return self.random.choice(("t.a", "t.b", "t.a + 1"))
        return self.random.choice(("t.s", "t.a", "t.b")) if name.startswith("o") else "t.s"

    def _rules(self) -> None:
        pick = self.random
        names = [branch["name"] for branch in self.branches]
        self.precedence = pick.sample(names, len(names))
        self.merge: dict[str, str] = {}
        for column in ("x", "y", "r.u", "r.v"):
            if any(column in branch["columns"] for branch in self.branches):
                functions = [None, *ORDERED, *(FREE if column in ("x", "r.u") else FREE[1:])]
                function = pick.choice(functions)
                if function:
                    self.merge[column] = function
        self.lifetime = f"anchor:{pick.choice(names)}" if pick.random() < 0.35 else "any"
        self.reuse = pick.random() < 0.8

    def another(self) -> None:
        """Other branches: one more, one less, or both."""
        pick = self.random
        if len(self.branches) > 2 and pick.random() < 0.6:
            self.branches.pop(pick.randrange(len(self.branches)))
        if len(self.branches) < 3 or pick.random() < 0.5:
            self.branches.insert(pick.randint(0, len(self.branches)), self._branch(self.number))
            self.number += 1
        self._rules()

    def options(self) -> dict[str, Any]:
        """The arguments of `create_partial_update`."""
        given = [(each["sql"], each["columns"], each["name"]) for each in self.branches]
        rules: dict[str, Any] = {"precedence": self.precedence, "merge": self.merge}
        if self.sequenced:
            rules["sequence_by"] = "seq"
        life = {"row_lifetime": self.lifetime, "reuse_sink": self.reuse}
        return {"key": self.keys, "branches": given, **rules, **life}

    # -- what it means -------------------------------------------------------------------------

    def meant(self, rows_of: Callable[[str], Iterable[Any]]) -> list[tuple[Any, ...]]:
        """The rows of the wide table, from the rows that the queries of the branches give now."""
        width = len(self.keys)
        said: dict[str, dict[tuple[Any, ...], dict[str, Any]]] = {}
        for branch in self.branches:
            said[branch["name"]] = mine = {}
            for row in rows_of(branch["sql"]):
                key, cells = (
                    tuple(row[:width]),
                    dict(zip(branch["columns"], row[width:], strict=True)),
                )
                if key in mine and mine[key]["seq"] > cells["seq"]:
                    continue
                mine[key] = cells
        anchor = self.lifetime.removeprefix("anchor:")
        living = said[anchor] if anchor in said else {k for rows in said.values() for k in rows}
        columns = list(dict.fromkeys(c for each in self.branches for c in each["columns"]))
        found = []
        for key in living:
            row: dict[str, Any] = {}
            for column in columns:
                value = self._cell(column, key, said)
                top, _, part = column.partition(".")
                if not part:
                    row[top] = value
                    continue
                row.setdefault(top, {})[part] = value
            for top, value in row.items():
                if isinstance(value, dict):
                    there = any(
                        key in said[each["name"]]
                        for each in self.branches
                        if any(c.startswith(f"{top}.") for c in each["columns"])
                    )
                    row[top] = tuple(value.values()) if there else None
            found.append((*key, *row.values()))
        return found

    def _cell(self, column: str, key: tuple[Any, ...], said: dict[str, Any]) -> Any:
        writers = [each["name"] for each in self.branches if column in each["columns"]]
        rows = [(name, said[name][key]) for name in writers if key in said[name]]
        values = [row[column] for _, row in rows]
        known = [value for value in values if value is not None]
        function = self.merge.get(column, "max" if column == "seq" else "last_value")
        if function == "count":
            return len(known)
        if function == "collect":
            order = self.precedence if not self._sequences(column) else writers
            ranked = sorted(rows, key=lambda each: order.index(each[0]))
            return [row[column] for _, row in ranked if row[column] is not None]
        if function in ("sum", "min", "max"):
            combine = {"sum": sum, "min": min, "max": max}[function]
            return combine(known) if known else None
        if function == "last_non_null_value":
            rows = [(name, row) for name, row in rows if row[column] is not None]
        if not rows:
            return None
        if self._sequences(column):
            return max(rows, key=lambda each: (each[1]["seq"], -writers.index(each[0])))[1][column]
        return min(rows, key=lambda each: self.precedence.index(each[0]))[1][column]

    def _sequences(self, column: str) -> bool:
        return self.sequenced and column != "seq"


def plain(value: Any) -> Any:
    """A value as it compares: numbers by their worth, structs and lists as tuples."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        return tuple(map(plain, value))
    return float(value) if value is not None and not isinstance(value, str | bool) else value


def _sql(value: Any) -> str:
    if value is None:
        return "NULL"
    return f"'{value}'" if isinstance(value, str) else str(value)


def _where(key: tuple[Any, ...]) -> str:
    own = f"(k = {key[0]} AND j = '{key[1]}'"
    return f"{own} AND seq = {key[2]})" if key[2] else f"{own})"
