"""Random tables, changes and queries of the covered language, all from one seed."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

TABLES = {
    "t1": (("k", "int"), ("v", "int"), ("d", "dec"), ("f", "dbl"), ("s", "str")),
    "t2": (("k", "int"), ("w", "int"), ("s", "str")),
    "t3": (("k", "int"), ("x", "dec"), ("b", "big")),
}
TYPES = {
    "int": "int",
    "big": "bigint",
    "dec": "decimal(10,2)",
    "dbl": "double",
    "str": "string",
}
MODES = (
    ("3", "merge-on-read"),
    ("3", "copy-on-write"),
    ("2", "merge-on-read"),
    ("2", "copy-on-write"),
)
_AGGREGATES = {
    "int": ("COUNT", "SUM", "AVG", "MIN", "MAX", "COUNT(DISTINCT"),
    "big": ("COUNT", "SUM", "AVG", "MIN", "MAX"),
    "dec": ("COUNT", "SUM", "AVG", "MIN", "MAX"),
    "dbl": ("COUNT", "SUM", "AVG", "MIN", "MAX"),
    "str": ("COUNT", "MIN", "MAX", "COUNT(DISTINCT"),
}
_RESULT = {"COUNT": "big", "COUNT(DISTINCT": "big", "AVG": "other"}

Columns = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Scenario:
    """Base tables, views over them (a later view may read an earlier), and changes by epoch.

    Texts name tables as `{schema}.name`.
    """

    seed: int
    create: tuple[str, ...]
    views: tuple[str, ...]
    epochs: tuple[tuple[str, ...], ...]

    def script(self) -> str:
        """The scenario as a script that a person can replay."""
        lines = [f"-- seed {self.seed}", *self.create]
        lines += [f"-- view v{number}\n{sql}" for number, sql in enumerate(self.views)]
        for number, statements in enumerate(self.epochs):
            lines += [f"-- epoch {number}", *statements]
        return ";\n".join(lines)


def scenario(seed: int, views: int, epochs: int) -> Scenario:
    """The scenario of a seed."""
    random = Random(seed)
    create = []
    for name, columns in TABLES.items():
        version, mode = random.choice(MODES)
        fields = ", ".join(f"{column} {TYPES[kind]}" for column, kind in columns)
        create.append(
            f"CREATE TABLE {{schema}}.{name} ({fields}) "
            f"TBLPROPERTIES ('format-version'='{version}',"
            + ", ".join(f" 'write.{verb}.mode'='{mode}'" for verb in ("delete", "update", "merge"))
            + ")"
        )
        create.append(_insert(random, name, random.choice((0, 10, 12, 14, 16, 18, 20, 22))))
    made: list[tuple[str, Columns]] = []
    texts = []
    for number in range(views):
        sql, columns = Query(random, made).block(random.choice((1, 1, 2)))
        texts.append(sql)
        readable = tuple(column for column in columns if column[1] != "other")
        if readable:
            made.append((f"v{number}", readable))
    changes = tuple(
        tuple(_change(random) for _ in range(random.choice((0, 2, 2, 3, 4))))
        for _ in range(epochs)
    )
    return Scenario(seed, tuple(create), tuple(texts), changes)


def _value(random: Random, kind: str) -> str:
    if random.random() < 0.12:
        return "NULL"
    if kind == "str":
        return f"'{random.choice('abc')}'"
    if kind == "dec":
        return f"{random.randint(-4, 4)}.{random.choice(('00', '25', '33', '50'))}"
    if kind == "dbl":
        return f"{random.randint(-12, 12) / 4}D"
    return str(random.randint(0, 3))


def _insert(random: Random, table: str, rows: int) -> str:
    if not rows:
        return f"SELECT 1 /* {table} starts empty */"
    columns = TABLES[table]
    values = [", ".join(_value(random, kind) for _, kind in columns) for _ in range(rows)]
    values += values[: random.randint(0, 3)]
    return f"INSERT INTO {{schema}}.{table} VALUES " + ", ".join(f"({row})" for row in values)


def _change(random: Random) -> str:
    table = random.choice(tuple(TABLES))
    columns = TABLES[table]
    target = f"{{schema}}.{table}"
    kind = random.random()
    if kind < 0.5:
        return _insert(random, table, random.randint(2, 8))
    column, type_ = random.choice(columns)
    where = f"{column} = {_sure(random, type_)}" if random.random() < 0.7 else ""
    where = where or _comparison(random, column, type_)
    if kind < 0.65:
        return f"DELETE FROM {target} WHERE {where}"
    if kind < 0.95:
        moved, moved_type = random.choice(columns)
        value = _value(random, moved_type)
        if moved_type in {"int", "big"} and random.random() < 0.6:
            value = f"{moved} + 1"
        return f"UPDATE {target} SET {moved} = {value} WHERE {where}"
    if kind < 0.99:
        return f"INSERT OVERWRITE {target} SELECT * FROM {target} WHERE NOT ({where})"
    return f"DELETE FROM {target}"


def _comparison(random: Random, column: str, kind: str) -> str:
    if random.random() < 0.2:
        return f"{column} IS {random.choice(('', 'NOT '))}NULL"
    operator = random.choice(("=", "<>", "<", ">="))
    return f"{column} {operator} {_sure(random, kind)}"


def _sure(random: Random, kind: str) -> str:
    """A value that is not NULL."""
    value = _value(random, kind)
    while value == "NULL":
        value = _value(random, kind)
    return value


class Query:
    """Builds one query; every block returns its text and its columns with their kinds."""

    def __init__(self, random: Random, views: list[tuple[str, Columns]]) -> None:
        self.random = random
        self.views = views
        self.names = 0

    def block(self, depth: int) -> tuple[str, Columns]:
        """A SELECT or a UNION of two."""
        if depth and self.random.random() < 0.15:
            return self._union(depth)
        sources, columns = self._from(depth)
        where = ""
        if self.random.random() < 0.3:
            terms = [
                _comparison(self.random, *self.random.choice(columns))
                for _ in range(self.random.choice((1, 1, 2)))
            ]
            where = f" WHERE {self.random.choice((' AND ', ' OR ')).join(terms)}"
        if self.random.random() < 0.55:
            return self._grouped(f"{sources}{where}", columns)
        return self._plain(f"{sources}{where}", columns)

    def _union(self, depth: int) -> tuple[str, Columns]:
        left, columns = self._shaped(depth - 1)
        right, _ = self._shaped(depth - 1)
        word = self.random.choice(("UNION ALL", "UNION ALL", "UNION"))
        return f"({left}) {word} ({right})", columns

    def _shaped(self, depth: int) -> tuple[str, Columns]:
        inner, columns = self.block(depth)
        alias = self._name("u")
        numbers = [c for c, kind in columns if kind in {"int", "big"}] or ["1"]
        texts = [c for c, kind in columns if kind == "str"] or ["'a'"]
        number, text = self.random.choice(numbers), self.random.choice(texts)
        sql = f"SELECT CAST({number} AS BIGINT) AS n, {text} AS s FROM ({inner}) {alias}"
        return sql, (("n", "big"), ("s", "str"))

    def _from(self, depth: int) -> tuple[str, Columns]:
        count = self.random.choice((1, 1, 2, 2, 3)) if depth else self.random.choice((1, 1, 2))
        text, columns = "", ()
        for position in range(count):
            source, own = self._source(depth)
            if not position:
                text, columns = f"FROM {source}", own
                continue
            keys = [(a, b) for a, ka in columns for b, kb in own if ka == kb]
            condition = " = ".join(self.random.choice(keys)) if keys else ""
            if keys and self.random.random() < 0.25:
                low, high = self.random.choice(keys)
                condition += f" AND {low} <= {high}"
            text += f" JOIN {source} ON {condition}" if condition else f" CROSS JOIN {source}"
            columns = (*columns, *own)
        return text, columns

    def _source(self, depth: int) -> tuple[str, Columns]:
        alias = self._name("r")
        if depth and self.random.random() < 0.35:
            inner, columns = self.block(depth - 1)
            columns = tuple(column for column in columns if column[1] != "other")
            if columns:
                owned = tuple((f"{alias}.{name}", kind) for name, kind in columns)
                return f"({inner}) {alias}", owned
        if self.views and self.random.random() < 0.25:
            name, columns = self.random.choice(self.views)
        else:
            name = self.random.choice(tuple(TABLES))
            columns = TABLES[name]
        return (
            f"{{schema}}.{name} {alias}",
            tuple((f"{alias}.{column}", kind) for column, kind in columns),
        )

    def _plain(self, body: str, columns: Columns) -> tuple[str, Columns]:
        chosen = self.random.sample(columns, min(len(columns), self.random.randint(1, 4)))
        items, made = [], []
        for name, given in chosen:
            alias = self._name("c")
            text, kind = name, given
            if kind in {"int", "big"} and self.random.random() < 0.3:
                text, kind = f"{name} * 2 + 1", "other"
            elif kind == "str" and self.random.random() < 0.3:
                text = f"concat({name}, '{{{{x}}}}')"
            items.append(f"{text} AS {alias}")
            made.append((alias, kind))
        distinct = "DISTINCT " if self.random.random() < 0.2 else ""
        return f"SELECT {distinct}{', '.join(items)} {body}", tuple(made)

    def _grouped(self, body: str, columns: Columns) -> tuple[str, Columns]:
        keyable = [column for column in columns if column[1] != "dbl"]
        keys = self.random.sample(keyable, min(len(keyable), self.random.choice((0, 1, 1, 1, 2))))
        items, made = [], []
        for name, kind in keys:
            if self.random.random() < 0.9:
                alias = self._name("c")
                items.append(f"{name} AS {alias}")
                made.append((alias, kind))
        for _ in range(self.random.randint(0 if made else 1, 3)):
            call, kind = self._call(columns)
            alias = self._name("c")
            items.append(f"{call} AS {alias}")
            made.append((alias, kind))
        group = f" GROUP BY {', '.join(name for name, _ in keys)}" if keys else ""
        having = ""
        if keys and self.random.random() < 0.3:
            having = f" HAVING {self.random.choice(('COUNT(*) > 1', self._condition(columns)))}"
        if not any("(" in item for item in items) and not keys:
            items.append("COUNT(*) AS n")
            made.append(("n", "big"))
        return f"SELECT {', '.join(items)} {body}{group}{having}", tuple(made)

    def _call(self, columns: Columns) -> tuple[str, str]:
        if self.random.random() < 0.25:
            return "COUNT(*)", "big"
        name, kind = self.random.choice(columns)
        function = self.random.choice(_AGGREGATES[kind])
        call = f"{function} {name})" if "(" in function else f"{function}({name})"
        result = _RESULT.get(function)
        if result is None:
            result = kind if function in {"MIN", "MAX"} else "other"
        adds = function in {"SUM", "COUNT"} or (function == "MIN" and kind != "str")
        if self.random.random() < 0.1 and adds:
            return f"{call} + 1", "other"
        return call, result

    def _condition(self, columns: Columns) -> str:
        name, _ = self.random.choice(
            [c for c in columns if c[1] in {"int", "big", "dec"}] or [("1", "int")]
        )
        return f"{self.random.choice(('MIN', 'MAX', 'SUM'))}({name}) > {self.random.randint(0, 9)}"

    def _name(self, prefix: str) -> str:
        self.names += 1
        return f"{prefix}{self.names}"
