"""Operators over several inputs: joins, sub-queries, set operations, common tables."""

from __future__ import annotations

from tests.differential.duck_queries import Operator, Queries, Rel, Source, under
from tests.differential.duck_terms import (
    COMPARABLE,
    JOINABLE,
    KINDS,
    NUMBERS,
    Col,
    Cols,
    call,
    condition,
    equality,
    literal,
    of,
    predicate,
)

_TYPES = {kind: type_ for type_, kind in KINDS.items()}
_ALIKE = ("int", "big", "str", "dec", "date", "ts", "bool", "dbl", "arr", "st")


def join(word: str) -> Operator:
    def made(q: Queries, depth: int) -> Rel:
        a, b = q.children(2, depth)
        on = condition(q.random, a.cols, b.cols)
        cols = (*a.cols, *b.cols)
        share = 0.2 if word == "JOIN" else 0.3
        text = f"FROM {a.sql} {word} {b.sql} ON {on}{q.where(cols, share)}"
        return q.select([*q.pick(a.cols, 2), *q.pick(b.cols, 2)], text)

    return made


def either(q: Queries, depth: int) -> Rel:
    """An OR of two or three conditions, which mostly have an equality in common."""
    a, b = q.children(2, depth)
    cols = (*a.cols, *b.cols)
    equal = equality(q.random, a.cols, b.cols)
    sides = [f"({equal} AND {predicate(q.random, cols)})" for _ in range(2) if equal]
    if not equal or q.random.random() < 0.4:
        sides.append(f"({predicate(q.random, cols)})")
    q.random.shuffle(sides)
    word = q.random.choice(("JOIN", "LEFT JOIN"))
    text = f"FROM {a.sql} {word} {b.sql} ON {' OR '.join(sides)}"
    return q.select([*q.pick(a.cols, 2), *q.pick(b.cols, 2)], text)


def cross(q: Queries, depth: int) -> Rel:
    a, b = q.children(2, depth)
    cols = (*a.cols, *b.cols)
    text = f"FROM {a.sql} CROSS JOIN {b.sql}{q.where(cols, 0.7)}"
    return q.select([*q.pick(a.cols, 2), *q.pick(b.cols, 2)], text)


def many(q: Queries, depth: int) -> Rel:
    """Three or four inputs, at times with outer joins among them."""
    sources = q.children(q.random.choice((3, 3, 4)), depth)
    text, cols = f"FROM {sources[0].sql}", sources[0].cols
    for source in sources[1:]:
        word = q.random.choice(("JOIN", "JOIN", "JOIN", "LEFT JOIN"))
        on = condition(q.random, cols, source.cols, 0.2)
        text, cols = f"{text} {word} {source.sql} ON {on}", (*cols, *source.cols)
    return q.select(q.pick(cols), text + q.where(cols))


def self(q: Queries, depth: int) -> Rel:
    """One text joined with itself."""
    a = q.child(depth)
    alias = q.name("r")
    other = Source(
        f"{a.sql.removesuffix(a.alias)}{alias}",
        tuple(Col(alias + c.text.removeprefix(a.alias), c.kind) for c in a.cols),
        alias,
    )
    word = q.random.choice(("JOIN", "JOIN", "LEFT JOIN"))
    on = condition(q.random, a.cols, other.cols)
    return q.select(
        [*q.pick(a.cols, 2), *q.pick(other.cols, 2)], f"FROM {a.sql} {word} {other.sql} ON {on}"
    )


def using(q: Queries, depth: int) -> Rel:
    a, b = q.children(2, depth)
    pairs = [(x, y) for x in a.cols for y in b.cols if x.kind == y.kind and x.kind in JOINABLE]
    if not pairs:
        return q.select([*q.pick(a.cols, 2), *q.pick(b.cols, 2)], f"FROM {a.sql}, {b.sql}")
    chosen = [q.random.choice(pairs)]
    chosen += [q.random.choice(pairs)] if q.chance(0.25) else []
    shared = [q.name("u") for _ in chosen]
    sides: list[str] = []
    shown: list[Col] = []
    for number, source in enumerate((a, b)):
        made = (
            f"{pair[number].text} AS {name}" for pair, name in zip(chosen, shared, strict=True)
        )
        rel = q.select(q.pick(source.cols, 2), f"FROM {source.sql}")
        alias = q.name("r")
        sides.append(f"(SELECT {', '.join(made)}, {rel.sql.removeprefix('SELECT ')}) {alias}")
        shown += under(alias, rel.cols)
    word = q.random.choice(("JOIN", "JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"))
    keys = [Col(name, pair[0].kind) for pair, name in zip(chosen, shared, strict=True)]
    return q.select(
        [*keys, *shown], f"FROM {sides[0]} {word} {sides[1]} USING ({', '.join(shared)})"
    )


def half(word: str) -> Operator:
    def made(q: Queries, depth: int) -> Rel:
        a, b = q.children(2, depth)
        on = condition(q.random, a.cols, b.cols)
        return q.select(q.pick(a.cols), f"FROM {a.sql} {word} {b.sql} ON {on}{q.where(a.cols)}")

    return made


def exists(word: str) -> Operator:
    def made(q: Queries, depth: int) -> Rel:
        a, b = q.children(2, depth)
        on = condition(q.random, a.cols, b.cols) if q.chance(0.9) else ""
        on = f" WHERE {on}" if on else q.where(b.cols)
        test = f"{word} (SELECT 1 FROM {b.sql}{on})"
        return _tested(q, a, test)

    return made


def _tested(q: Queries, a: Source, test: str) -> Rel:
    """The rows of `a` that pass a test, alone, with another, or as an alternative."""
    other = predicate(q.random, a.cols, 0)
    form = q.random.random()
    test = (
        f"{other} AND {test}" if form < 0.15 else f"({test} OR {other})" if form < 0.27 else test
    )
    return q.select(q.pick(a.cols), f"FROM {a.sql} WHERE {test}")


def in_query(word: str) -> Operator:
    def made(q: Queries, depth: int) -> Rel:
        a, b = q.children(2, depth)
        pairs = [(x, y) for x in a.cols for y in b.cols if x.kind == y.kind and x.kind in JOINABLE]
        if not pairs:
            return _tested(q, a, f"{literal(q.random, 'int')} {word} (SELECT 1 FROM {b.sql})")
        x, y = q.random.choice(pairs)
        left, right = x.text, y.text
        corr = equality(q.random, a.cols, b.cols) if q.chance(0.35) else ""
        if not corr and q.chance(0.25):
            x2, y2 = q.random.choice(pairs)
            left, right = f"({left}, {x2.text})", f"{right}, {y2.text}"
        where = f" WHERE {corr}" if corr else q.where(b.cols)
        return _tested(q, a, f"{left} {word} (SELECT {right} FROM {b.sql}{where})")

    return made


def scalar(q: Queries, depth: int) -> Rel:
    """An uncorrelated scalar sub-query, as a bound or as a column."""
    a, b = q.children(2, depth)
    pair = _one(q, a, b)
    if pair is None or q.chance(0.3):
        made = call(q.random, b.cols, "basic")
        value = Col(f"(SELECT {made.text} FROM {b.sql}{q.where(b.cols)})", made.kind)
        return q.select([*q.pick(a.cols, 3), value], f"FROM {a.sql}")
    x, y = pair
    operator = q.random.choice(("<", "<=", "=", ">=", ">"))
    inner = f"(SELECT {q.random.choice(('MIN', 'MAX'))}({y.text}) FROM {b.sql}{q.where(b.cols)})"
    return q.select(q.pick(a.cols), f"FROM {a.sql} WHERE {x.text} {operator} {inner}")


def two_queries(q: Queries, depth: int) -> Rel:
    """Two sub-queries in one WHERE, both needed or one of them."""
    a, b, c = q.children(3, depth)
    tests = []
    for source in (b, c):
        on = condition(q.random, a.cols, source.cols, 0.2)
        word = q.random.choice(("EXISTS", "NOT EXISTS"))
        tests.append(f"{word} (SELECT 1 FROM {source.sql} WHERE {on})")
    joined = q.random.choice((" AND ", " AND ", " OR ")).join(tests)
    return q.select(q.pick(a.cols), f"FROM {a.sql} WHERE {joined}")


def having_query(q: Queries, depth: int) -> Rel:
    """Groups measured by another query."""
    a, b = q.children(2, depth)
    keys = q.keys(a.cols)
    group = ", ".join(key.text for key in keys)
    operator = q.random.choice(("<", "<=", ">=", "<>"))
    bound = q.random.choice(
        (f"(SELECT COUNT(*) FROM {b.sql})", f"(SELECT 2 FROM {b.sql} LIMIT 1)")
    )
    having = f"COUNT(*) {operator} {bound}"
    pair = _one(q, Source("", tuple(keys), ""), b)
    if pair is not None and q.chance(0.4):
        having = f"{pair[0].text} {q.random.choice(('IN', 'NOT IN'))} (SELECT {pair[1].text} FROM {b.sql})"
    text = f"FROM {a.sql}{q.where(a.cols)} GROUP BY {group} HAVING {having}"
    return q.select([*keys, *q.calls(a.cols)], text)


def correlated(q: Queries, depth: int) -> Rel:
    """A correlated scalar sub-query: COUNT over nothing is 0, HAVING may leave nothing."""
    a, b = q.children(2, depth)
    on = equality(q.random, a.cols, b.cols)
    made = call(q.random, b.cols, q.random.choice(("basic", "basic", "distinct", "filter")))
    having = " HAVING COUNT(*) > 1" if q.chance(0.2) else ""
    rest = f" AND {predicate(q.random, b.cols, 0)}" if q.chance(0.3) else ""
    text = f"(SELECT {made.text} FROM {b.sql} WHERE {on or 'true'}{rest}{having})"
    if made.kind in NUMBERS and q.chance(0.4):
        test = f"{text} {q.random.choice(('>', '=', '<='))} {literal(q.random, 'int')}"
        return q.select(q.pick(a.cols), f"FROM {a.sql} WHERE {test}")
    return q.select([*q.pick(a.cols, 3), Col(text, made.kind)], f"FROM {a.sql}")


def _one(q: Queries, a: Source, b: Source) -> tuple[Col, Col] | None:
    pairs = [(x, y) for x in a.cols for y in b.cols if x.kind == y.kind and x.kind in COMPARABLE]
    return q.random.choice(pairs) if pairs else None


def lateral(q: Queries, depth: int) -> Rel:
    """A sub-query of FROM that names the row on its left."""
    a, b = q.children(2, depth)
    on = condition(q.random, a.cols, b.cols, 0.2)
    if q.chance(0.5):
        inner = q.select(q.calls(b.cols, "", 2), f"FROM {b.sql} WHERE {on}")
    else:
        inner = q.select(q.pick(b.cols, 2), f"FROM {b.sql} WHERE {on}")
    alias = q.name("l")
    form = q.random.choice((", LATERAL ({}) {}", " LEFT JOIN LATERAL ({}) {} ON true"))
    items = [*q.pick(a.cols, 2), *under(alias, inner.cols)]
    return q.select(items, f"FROM {a.sql}{form.format(inner.sql, alias)}")


def set_operation(word: str) -> Operator:
    def made(q: Queries, depth: int) -> Rel:
        a, b = q.children(2, depth)
        usable = [col for col in a.cols if col.kind in _ALIKE] or [Col("0", "int")]
        items = q.random.sample(usable, min(len(usable), q.random.choice((1, 2, 2))))
        left = q.select(items, f"FROM {a.sql}{q.where(a.cols)}")
        others = [_alike(q, col.kind, b.cols) for col in items]
        right = q.select(others, f"FROM {b.sql}{q.where(b.cols)}")
        wide = tuple(
            Col(col.text, "big") if {col.kind, other.kind} == {"int", "big"} else col
            for col, other in zip(left.cols, others, strict=True)
        )
        return Rel(f"{left.sql} {word} {right.sql}", wide)

    return made


def _alike(q: Queries, kind: str, cols: Cols) -> Col:
    found = of(cols, *(NUMBERS if kind in NUMBERS and q.chance(0.3) else (kind,)))
    if found:
        return q.random.choice(found)
    return Col(f"CAST(NULL AS {_TYPES[kind]})", kind)


def values(q: Queries, depth: int) -> Rel:
    a = q.child(depth)
    usable = of(a.cols, "int", "big", "str")
    kind = q.random.choice(usable).kind if usable else "int"
    alias = q.name("w")
    rows = [f"({literal(q.random, kind)}, {number})" for number in range(3)]
    rows += ["(NULL, 9)"] if q.chance(0.4) else []
    inner = (Col(f"{alias}.y", kind), Col(f"{alias}.z", "int"))
    word = q.random.choice(("JOIN", "JOIN", "LEFT JOIN"))
    on = condition(q.random, a.cols, inner[:1], 0.1)
    text = f"FROM {a.sql} {word} (VALUES {', '.join(rows)}) AS {alias}(y, z) ON {on}"
    return q.select([*q.pick(a.cols, 3), inner[1]], text)


def common(q: Queries, depth: int) -> Rel:
    """A common table that is read twice or three times."""
    name = q.name("w")
    a = q.child(depth)
    base = q.select(q.pick(a.cols), f"FROM {a.sql}{q.where(a.cols)}")
    uses = [q.name("r") for _ in range(q.random.choice((2, 2, 3)))]
    cols = [under(alias, base.cols) for alias in uses]
    head = f"WITH {name} AS ({base.sql}) "
    if q.chance(0.3):
        left, right = (
            q.select(list(c), f"FROM {name} {u}") for c, u in zip(cols[:2], uses[:2], strict=True)
        )
        word = q.random.choice(("UNION ALL", "UNION", "EXCEPT", "INTERSECT ALL"))
        return Rel(f"{head}{left.sql} {word} {right.sql}", left.cols)
    text, seen = f"FROM {name} {uses[0]}", cols[0]
    for alias, own in zip(uses[1:], cols[1:], strict=True):
        text += f" {q.random.choice(('JOIN', 'LEFT JOIN'))} {name} {alias} ON "
        text += condition(q.random, seen, own)
        seen = (*seen, *own)
    rel = q.select(q.pick(seen), text)
    return Rel(head + rel.sql, rel.cols)


def block(q: Queries, depth: int) -> Rel:
    """What people write: joins, WHERE, GROUP BY, HAVING and DISTINCT in one SELECT."""
    sources = q.children(q.random.choice((2, 2, 3)), depth)
    text, cols = f"FROM {sources[0].sql}", sources[0].cols
    for source in sources[1:]:
        text += f" JOIN {source.sql} ON {condition(q.random, cols, source.cols, 0.15)}"
        cols = (*cols, *source.cols)
    keys = q.keys(cols)
    text += q.where(cols, 0.5) + f" GROUP BY {', '.join(key.text for key in keys)}"
    text += " HAVING COUNT(*) > 1" if q.chance(0.25) else ""
    return q.select([*keys, *q.calls(cols)], text, "DISTINCT " if q.chance(0.15) else "")
