"""Correlated sub-queries that are grouped, made distinct or cut to their first rows."""

from __future__ import annotations

from tests.differential.duck_queries import Queries, Rel, Source, under
from tests.differential.duck_terms import JOINABLE, Col, call, condition, literal, predicate


def first(q: Queries, depth: int) -> Rel:
    """The first, or second, of the rows that belong to a row, as a value."""
    a, b = q.children(2, depth)
    y = q.random.choice(b.cols)
    offset = " OFFSET 1" if q.chance(0.25) else ""
    word = "DISTINCT " if y.kind in JOINABLE and q.chance(0.2) else ""
    order = q.order((y,) if word else b.cols)
    value = (
        f"(SELECT {word}{y.text} FROM {b.sql}{_where(q, a, b)} ORDER BY {order} LIMIT 1{offset})"
    )
    return q.select([*q.pick(a.cols, 3), Col(value, y.kind)], f"FROM {a.sql}")


def grouped_value(q: Queries, depth: int) -> Rel:
    """One group of the rows that belong to a row: nothing, not 0, where there is none."""
    a, b = q.children(2, depth)
    made = q.calls(b.cols, "", 1)[0]
    keys = ", ".join(key.text for key in q.keys(b.cols))
    form = q.random.random()
    if form < 0.5:
        rest = f"GROUP BY {keys}{_having(q, a)} ORDER BY {made.text} DESC NULLS LAST LIMIT 1"
        value = f"(SELECT {made.text} FROM {b.sql}{_where(q, a, b)} {rest})"
    elif form < 0.75:
        key = q.keys(b.cols, 1)[0]
        value = (
            f"(SELECT COUNT(*) FROM {b.sql}{_where(q, a, b)} AND"
            f" {key.text} = {literal(q.random, key.kind)} GROUP BY {key.text})"
        )
        made = Col(value, "big")
    else:
        key = q.keys(b.cols, 1)[0]
        value = f"(SELECT MAX({key.text}) FROM {b.sql}{_where(q, a, b)} HAVING COUNT(*) > 1)"
        made = Col(value, key.kind)
    return q.select([*q.pick(a.cols, 3), Col(value, made.kind)], f"FROM {a.sql}")


def tested(q: Queries, depth: int) -> Rel:
    """EXISTS and IN over groups, over an aggregate, and over the first rows."""
    a, b = q.children(2, depth)
    pairs = [(x, y) for x in a.cols for y in b.cols if x.kind == y.kind and x.kind in JOINABLE]
    where, no = _where(q, a, b), q.random.choice(("", "NOT "))
    keys = ", ".join(key.text for key in q.keys(b.cols))
    group = q.random.choice(
        (
            f" GROUP BY {keys}{_having(q, a)}",
            f" GROUP BY {keys} HAVING COUNT(*) > 1",
            "",
        )
    )
    if not pairs or q.chance(0.4):
        item = "COUNT(*)" if group else "1"
        limit = q.random.choice(("", " LIMIT 1")) if group else " LIMIT 1 OFFSET 1"
        test = f"{no}EXISTS (SELECT {item} FROM {b.sql}{where}{group}{limit})"
    else:
        x, y = q.random.choice(pairs)
        if group:
            inner = (
                f"SELECT {q.random.choice(('MIN', 'MAX'))}({y.text}) FROM {b.sql}{where}{group}"
            )
        elif q.chance(0.3):
            inner = f"SELECT DISTINCT {y.text} FROM {b.sql}{where} ORDER BY {y.text} LIMIT 2"
        else:
            order = q.order(b.cols)
            limit = q.random.choice(("1", "2", "1 OFFSET 1"))
            inner = f"SELECT {y.text} FROM {b.sql}{where} ORDER BY {order} LIMIT {limit}"
        test = f"{x.text} {no}IN ({inner})"
    other = predicate(q.random, a.cols, 0)
    test = f"({test} OR {other})" if q.chance(0.25) else test
    return q.select(q.pick(a.cols), f"FROM {a.sql} WHERE {test}")


def one_group(q: Queries, depth: int) -> Rel:
    """EXISTS and IN over an aggregate of all rows that belong to a row, where HAVING may drop it."""
    a, b = q.children(2, depth)
    pairs = [(x, y) for x in a.cols for y in b.cols if x.kind == y.kind and x.kind in JOINABLE]
    rest = f"FROM {b.sql}{_where(q, a, b)}"
    rest += f" HAVING COUNT(*) {q.random.choice(('> 1', '= 0', '< 2'))}" if q.chance(0.8) else ""
    no = q.random.choice(("", "NOT ", "NOT "))
    test = f"{no}EXISTS (SELECT COUNT(*) {rest})"
    if pairs and q.chance(0.7):
        x, y = q.random.choice(pairs)
        item = f"{q.random.choice(('MIN', 'MAX'))}({y.text})"
        if "HAVING" in rest and x.kind == "int" and q.chance(0.3):
            item = q.random.choice(("0", "1", "2"))
        test = f"{x.text} {no}IN (SELECT {item} {rest})"
    return q.select(q.pick(a.cols), f"FROM {a.sql} WHERE {test}")


def lateral(q: Queries, depth: int) -> Rel:
    """The same in FROM, with all of its rows."""
    a, b = q.children(2, depth)
    where, form = _where(q, a, b), q.random.random()
    if form < 0.3:
        usable = [col for col in b.cols if col.kind in JOINABLE] or [Col("1", "int")]
        inner = q.select(usable[:2], f"FROM {b.sql}{where}", "DISTINCT ")
    elif form < 0.6:
        keys = q.keys(b.cols)
        group = f" GROUP BY {', '.join(key.text for key in keys)}{_having(q, a)}"
        inner = q.select([*keys, *q.calls(b.cols, "", 2)], f"FROM {b.sql}{where}{group}")
    elif form < 0.7:
        inner = q.select(q.calls(b.cols, "", 2), f"FROM {b.sql}{where} HAVING COUNT(*) > 1")
    else:
        limit = q.random.choice(("1", "2", "2 OFFSET 1"))
        rest = f"FROM {b.sql}{where} ORDER BY {q.order(b.cols)} LIMIT {limit}"
        inner = q.select(q.pick(b.cols, 2), rest)
    alias = q.name("l")
    joined = q.random.choice((", LATERAL ({}) {}", " LEFT JOIN LATERAL ({}) {} ON true"))
    items = [*q.pick(a.cols, 2), *under(alias, inner.cols)]
    return q.select(items, f"FROM {a.sql}{joined.format(inner.sql, alias)}")


def shadowed(q: Queries, depth: int) -> Rel:
    """IN over a sub-query that gives an alias of the rows outside another meaning."""
    a, b, c = q.children(3, depth)
    pairs = [(x, y) for x in a.cols for y in b.cols if x.kind == y.kind and x.kind in JOINABLE]
    if not pairs:
        return q.select(q.pick(a.cols), f"FROM {a.sql}")
    x, y = q.random.choice(pairs)
    other = tuple(Col(col.text.replace(f"{b.alias}.", f"{a.alias}."), col.kind) for col in b.cols)
    inner = f"{b.sql.removesuffix(b.alias)}{a.alias}"
    on = condition(q.random, c.cols, other, 0.2)
    shown = y.text.replace(f"{b.alias}.", f"{a.alias}.")
    word = q.random.choice(("IN", "NOT IN"))
    joined = f"{a.sql} JOIN {c.sql} ON {condition(q.random, a.cols, c.cols)}"
    test = f"{x.text} {word} (SELECT {shown} FROM {inner} WHERE {on})"
    return q.select([*q.pick(a.cols), *q.pick(c.cols, 1)], f"FROM {joined} WHERE {test}")


def of_few(q: Queries, depth: int) -> Rel:
    """Groups that are asked for by rows that a filter leaves, in the ways to say so."""
    a, b, c = q.children(3, depth)
    kinds = {kind for kind in JOINABLE if all(_of(each, kind) for each in (a, b, c))}
    if not kinds:
        return q.select(q.pick(a.cols), f"FROM {a.sql}")
    kind = q.random.choice(sorted(kinds))
    x, y, z = (q.random.choice(_of(each, kind)) for each in (a, b, c))
    tested = q.random.choice([col for col in c.cols if col.kind in JOINABLE])
    few = f"{tested.text} = {literal(q.random, tested.kind)}"
    if tested.kind == "int" and q.chance(0.3):
        few = f"{tested.text} IN (1, 2)"
    outer = q.random.choice(
        (
            f"FROM {a.sql} JOIN {c.sql} ON {z.text} = {x.text} WHERE {few}",
            f"FROM {a.sql} WHERE {x.text} IN (SELECT {z.text} FROM {c.sql} WHERE {few})",
        )
    )
    made = call(q.random, b.cols, "basic")
    if q.chance(0.6):
        rest = f" AND {predicate(q.random, b.cols, 0)}" if q.chance(0.3) else ""
        value = f"(SELECT {made.text} FROM {b.sql} WHERE {y.text} = {x.text}{rest})"
        return q.select([*q.pick(a.cols, 2), Col(value, made.kind)], outer)
    rows, groups = q.select([x, *q.pick(a.cols, 2)], outer), q.select([y, made], f"FROM {b.sql}")
    left, right = q.name("l"), q.name("r")
    key, value = groups.cols
    word = q.random.choice(("LEFT JOIN", "LEFT SEMI JOIN", "LEFT ANTI JOIN"))
    shown = [*under(left, rows.cols), *(under(right, [value]) if word == "LEFT JOIN" else ())]
    text = f"({groups.sql} GROUP BY {y.text}) {right}"
    on = f"{right}.{key.text} = {left}.{rows.cols[0].text}"
    return q.select(shown, f"FROM ({rows.sql}) {left} {word} {text} ON {on}")


def _of(source: Source, kind: str) -> list[Col]:
    return [col for col in source.cols if col.kind == kind]


def _where(q: Queries, a: Source, b: Source) -> str:
    return f" WHERE {condition(q.random, a.cols, b.cols, 0.2)}"


def _having(q: Queries, a: Source) -> str:
    """At times a condition on groups, at times one that names the row outside."""
    if q.chance(0.5):
        return ""
    numbers = [col.text for col in a.cols if col.kind in {"int", "big"}]
    bound = q.random.choice(numbers) if numbers and q.chance(0.4) else "1"
    return f" HAVING COUNT(*) > {bound}"
