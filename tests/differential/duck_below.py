"""Sub-queries that reach out below their WHERE, or stand in the ON of a join; joins in brackets."""

from __future__ import annotations

from tests.differential.duck_queries import Queries, Rel, Source, under
from tests.differential.duck_terms import JOINABLE, NUMBERS, Col, Cols, condition

_SETS = ("UNION ALL", "UNION ALL", "UNION", "INTERSECT", "INTERSECT ALL", "EXCEPT", "EXCEPT ALL")


def asked_below(q: Queries, depth: int) -> Rel:
    """EXISTS, IN, a value and LATERAL over what reaches out in a derived table."""
    a, b, c = q.children(3, depth)
    kind, sql, name = _sides(q, a, b, c)
    form = q.random.random()
    some = [col for col in a.cols if col.kind == kind]
    if form < 0.25:
        test = f"{q.random.choice(('', 'NOT '))}EXISTS ({sql})"
        return q.select(q.pick(a.cols), f"FROM {a.sql} WHERE {test}")
    if form < 0.5 and some:
        test = f"{some[0].text} {q.random.choice(('IN', 'NOT IN'))} ({sql})"
        return q.select(q.pick(a.cols), f"FROM {a.sql} WHERE {test}")
    alias = q.name("l")
    if form < 0.75 or kind not in JOINABLE:
        call = q.random.choice(("COUNT", "COUNT", "MAX", "MIN"))
        value = f"(SELECT {call}({alias}.{name}) FROM ({sql}) {alias})"
        made = Col(value, "big" if call == "COUNT" else kind)
        return q.select([*q.pick(a.cols, 3), made], f"FROM {a.sql}")
    joined = q.random.choice((", LATERAL ({}) {}", " LEFT JOIN LATERAL ({}) {} ON true"))
    items = [*q.pick(a.cols, 2), *under(alias, (Col(name, kind),))]
    return q.select(items, f"FROM {a.sql}{joined.format(sql, alias)}")


def _sides(q: Queries, a: Source, b: Source, c: Source) -> tuple[str, str, str]:
    """A query of one column that reaches out of one of its parts or of several: kind, text, name."""
    name = q.name("c")
    pairs = [(x, y) for x in b.cols for y in c.cols if x.kind == y.kind and x.kind in JOINABLE]
    where = f" WHERE {condition(q.random, a.cols, b.cols, 0.2)}"
    if not pairs or q.chance(0.3):
        key, inner = q.keys(b.cols, 1)[0], q.name("d")
        word = q.random.choice(("DISTINCT ", "", ""))
        below = f"SELECT {word}{key.text} AS {name} FROM {b.sql}{where}"
        if q.chance(0.5):
            return key.kind, f"WITH {inner} AS ({below}) SELECT {inner}.{name} FROM {inner}", name
        return key.kind, f"SELECT {inner}.{name} FROM ({below}) {inner}", name
    x, y = q.random.choice(pairs)
    other = f" WHERE {condition(q.random, a.cols, c.cols, 0.2)}" if q.chance(0.5) else ""
    text = (
        f"SELECT {x.text} AS {name} FROM {b.sql}{where} {q.random.choice(_SETS)}"
        f" SELECT {y.text} AS {name} FROM {c.sql}{other}"
    )
    return x.kind, text, name


def asked_in_on(q: Queries, depth: int) -> Rel:
    """A join of any kind whose ON asks a sub-query about one of its sides, or about none."""
    a, b, c = q.children(3, depth)
    word = q.random.choice(("JOIN", "LEFT JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL OUTER JOIN"))
    side = q.random.choice((a, b))
    pairs = [(x, y) for x in side.cols for y in c.cols if x.kind == y.kind and x.kind in JOINABLE]
    numbers = [col for col in c.cols if col.kind in NUMBERS]
    no = q.random.choice(("", "NOT "))
    if pairs and q.chance(0.5):
        x, y = q.random.choice(pairs)
        test = f"{x.text} {no}IN (SELECT {y.text} FROM {c.sql}{q.where(c.cols)})"
    elif numbers and q.chance(0.4) and (own := [col for col in side.cols if col.kind in NUMBERS]):
        test = f"{own[0].text} >= (SELECT MIN({numbers[0].text}) FROM {c.sql})"
    else:
        asked = condition(q.random, side.cols, c.cols, 0.2) if q.chance(0.6) else "1 = 1"
        test = f"{no}EXISTS (SELECT 1 FROM {c.sql} WHERE {asked})"
    on = f"{condition(q.random, a.cols, b.cols)} {q.random.choice(('AND', 'AND', 'OR'))} {test}"
    return q.select(
        [*q.pick(a.cols, 2), *q.pick(b.cols, 2)], f"FROM {a.sql} {word} {b.sql} ON ({on})"
    )


def in_brackets(q: Queries, depth: int) -> Rel:
    """Joins of joins."""
    a, b, c = q.children(3, depth)
    words = ("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL OUTER JOIN")
    outer, inner = q.random.choice(words), q.random.choice(words)
    pair = f"({b.sql} {inner} {c.sql} ON {condition(q.random, b.cols, c.cols)})"
    on = condition(q.random, a.cols, q.random.choice((b.cols, c.cols, (*b.cols, *c.cols))), 0.2)
    text = f"FROM {a.sql} {outer} {pair} ON {on}"
    if outer == "JOIN" and q.chance(0.5):
        text = f"FROM {pair} {outer} {a.sql} ON {on}"
    return q.select([*q.pick(a.cols, 1), *q.pick(b.cols, 1), *q.pick(c.cols, 2)], text)


def pairs_not_in(q: Queries, depth: int) -> Rel:
    """`(x, y) NOT IN` a sub-query; DuckDB has no correlated one of two columns."""
    a, b = q.children(2, depth)
    cols: list[tuple[Col, Col]] = _pairs(q, a.cols, b.cols)
    if not cols:
        return q.select(q.pick(a.cols), f"FROM {a.sql}")
    left = ", ".join(x.text for x, _ in cols)
    right = ", ".join(y.text for _, y in cols)
    left = f"({left})" if len(cols) > 1 else left
    test = f"{left} NOT IN (SELECT {right} FROM {b.sql}{q.where(b.cols)})"
    return q.select(q.pick(a.cols), f"FROM {a.sql} WHERE {test}")


def _pairs(q: Queries, a: Cols, b: Cols) -> list[tuple[Col, Col]]:
    found = [(x, y) for x in a for y in b if x.kind == y.kind and x.kind in JOINABLE]
    return q.random.sample(found, min(len(found), 2))
