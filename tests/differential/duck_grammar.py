"""Random tables, changes and views, all from one seed.

Left out, because DuckDB cannot say what Spark means, or says it with another value:
- AVG of a decimal (a double in DuckDB) and products or quotients of decimals (other widths);
- approximate aggregates, sketches, `first`/`last`/`any_value` (no order, no one answer);
- NaN, overflow and failing casts (ANSI errors), collations, intervals, maps, variants, JSON;
- IN of several columns in a correlated sub-query (DuckDB has it not yet);
- collect_list and collect_set with FILTER (sqlglot puts a FILTER of its own there).
Those stay with `tests/property`, which runs on Spark. All queries but those with QUALIFY were
analysed by Spark 4.1, which reads no QUALIFY, and have the types that `DuckCatalog` gives them.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict, dataclass
from random import Random

from tests.differential.duck_operators import OPERATORS
from tests.differential.duck_queries import Queries

TABLES: dict[str, tuple[tuple[str, str], ...]] = {
    "t1": (("k", "int"), ("v", "int"), ("s", "string"), ("d", "decimal(10,2)"), ("b", "boolean")),
    "t2": (("k", "int"), ("w", "int"), ("s", "string"), ("dt", "date"), ("f", "double")),
    "t3": (
        ("k", "int"),
        ("g", "bigint"),
        ("ts", "timestamp"),
        ("arr", "array<int>"),
        ("st", "struct<a:int,b:string>"),
    ),
    "t4": (("k", "int not null"), ("n", "int not null"), ("s", "string not null")),
}
VIEWS: dict[str, tuple[str, tuple[tuple[str, str], ...]]] = {
    "p1": (
        "SELECT a.k, a.v AS w, b.s FROM t1 a JOIN t4 b ON a.k = b.k WHERE a.v > 0",
        (("k", "int"), ("w", "int"), ("s", "string")),
    ),
    "p2": (
        "SELECT k, COUNT(*) AS g, MAX(dt) AS dt FROM s.t2 GROUP BY k",
        (("k", "int"), ("g", "bigint"), ("dt", "date")),
    ),
}
"""Plain views: their texts, which the compiler opens, and their columns."""
_READ = {**TABLES, **{name: columns for name, (_, columns) in VIEWS.items()}}
_START = (0, 2, 5, 6, 8, 10)
"""Rows of a table at the start."""


@dataclass(frozen=True)
class View:
    """A Spark query over `lake.s.t1` …, and its operators: (outer, inner) pairs with their counts."""

    sql: str
    pairs: tuple[tuple[str, str], ...] = ()

    @property
    def operators(self) -> frozenset[str]:
        return frozenset(inner for _, inner in self.pairs)


@dataclass(frozen=True)
class Scenario:
    """Statements (DuckDB's) that fill the tables, views, and statements by epoch.

    `quiet`: changes that cancel count as no change. `printed`: the printed program is run.
    """

    seed: int
    create: tuple[str, ...]
    views: tuple[View, ...]
    epochs: tuple[tuple[str, ...], ...]
    quiet: bool
    printed: bool

    def to_json(self) -> str:
        body = asdict(self)
        body["views"] = [view.sql for view in self.views]
        return json.dumps(body, indent=1)

    @classmethod
    def from_json(cls, text: str) -> Scenario:
        body = json.loads(text)
        return cls(
            seed=body["seed"],
            create=tuple(body["create"]),
            views=tuple(View(sql) for sql in body["views"]),
            epochs=tuple(map(tuple, body["epochs"])),
            quiet=body["quiet"],
            printed=body["printed"],
        )

    def script(self) -> str:
        """The scenario as a script that a person can replay in DuckDB."""
        lines = [f"-- seed {self.seed}, quiet={self.quiet}, printed={self.printed}"]
        for name, columns in TABLES.items():
            lines.append(f"-- {name} ({', '.join(' '.join(column) for column in columns)})")
        lines += [f"-- {name} AS {text}" for name, (text, _) in VIEWS.items()]
        lines += [f"{statement};" for statement in self.create]
        lines += [f"-- view (Spark SQL)\n{view.sql};" for view in self.views]
        for number, statements in enumerate(self.epochs):
            lines.append(f"-- epoch {number}")
            lines += [f"{statement};" for statement in statements]
        return "\n".join(lines)


def scenario(seed: int, views: int, epochs: int, only: tuple[str, ...] = ()) -> Scenario:
    """The scenario of a seed; `only` these operators, when some are named."""
    operators = {name: OPERATORS[name] for name in only or OPERATORS}
    random = Random(seed)
    create = [_insert(random, name, random.choice(_START)) for name in TABLES]
    made = []
    for _ in range(views):
        queries = Queries(random, _READ, operators)
        sql = queries.view()
        counted: Counter[tuple[str, str]] = queries.pairs
        made.append(View(sql, tuple(counted.elements())))
    changes = tuple(_epoch(random) for _ in range(epochs))
    return Scenario(
        seed,
        tuple(statement for statement in create if statement),
        tuple(made),
        changes,
        quiet=random.random() < 0.7,
        printed=random.random() < 0.3,
    )


# -- changes, as statements of DuckDB ------------------------------------------------------------


def _epoch(random: Random) -> tuple[str, ...]:
    count = random.choice((0, 1, 2, 2, 3, 3, 4, 6))
    statements = [_change(random) for _ in range(count)]
    return tuple(statement for statement in statements if statement)


def _change(random: Random) -> str:
    name = random.choice(tuple(TABLES))
    kind = random.random()
    if kind < 0.42:
        return _insert(random, name, random.choice((1, 1, 2, 3, 6)))
    where = _where(random, name)
    if kind < 0.62:
        return f"DELETE FROM {name} WHERE {where}"
    if kind < 0.9:
        column, type_ = random.choice(TABLES[name])
        value = _value(random, type_)
        if type_.startswith("int") and random.random() < 0.5:
            value = f"{column} + {random.choice((1, -1))}"
        return f"UPDATE {name} SET {column} = {value} WHERE {where}"
    if kind < 0.93:
        return f"INSERT INTO {name} SELECT * FROM {name} WHERE {where}"
    return f"DELETE FROM {name}"


def _where(random: Random, name: str) -> str:
    column, type_ = random.choice(TABLES[name])
    if random.random() < 0.15:
        return f"{column} IS NULL"
    value = _value(random, type_.removesuffix(" not null") + " not null")
    return f"{column} {random.choice(('=', '=', '<>', '<=', '>'))} {value}"


def _insert(random: Random, name: str, rows: int) -> str:
    if not rows:
        return ""
    values = [", ".join(_value(random, type_) for _, type_ in TABLES[name]) for _ in range(rows)]
    values += random.sample(values, random.choice((0, 0, 1, min(2, rows))))
    return f"INSERT INTO {name} VALUES " + ", ".join(f"({row})" for row in values)


def _value(random: Random, type_: str) -> str:
    if not type_.endswith(" not null") and random.random() < 0.15:
        return "NULL"
    kind = type_.removesuffix(" not null")
    if kind in {"int", "bigint"}:
        return str(random.choice((0, 1, 1, 2, 2, 3)))
    if kind == "string":
        return f"'{random.choice(('a', 'b', 'c', ''))}'"
    if kind == "boolean":
        return random.choice(("true", "false"))
    if kind == "double":
        return f"{random.randint(-6, 6) / 4}"
    if kind == "date":
        return f"DATE '2024-01-0{random.randint(1, 4)}'"
    if kind == "timestamp":
        return f"TIMESTAMP '2024-01-01 0{random.randint(0, 3)}:30:00'"
    if kind.startswith("decimal"):
        return f"{random.randint(-3, 3)}.{random.choice(('00', '25', '33', '50'))}"
    if kind.startswith("array"):
        items = [_value(random, "int") for _ in range(random.choice((0, 1, 2, 2, 3)))]
        return f"[{', '.join(items)}]"
    return f"{{'a': {_value(random, 'int')}, 'b': {_value(random, 'string')}}}"
