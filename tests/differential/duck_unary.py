"""Operators over one input: filters, projections, generators, groups, windows."""

from __future__ import annotations

from tests.differential.duck_queries import Operator, Queries, Rel, under
from tests.differential.duck_terms import (
    COMPARABLE,
    FAMILIES,
    NUMBERS,
    Col,
    Cols,
    call,
    compound,
    expression,
    of,
    predicate,
)


def filtered(q: Queries, depth: int) -> Rel:
    a = q.child(depth)
    return q.select(q.pick(a.cols), f"FROM {a.sql} WHERE {predicate(q.random, a.cols)}")


def project(q: Queries, depth: int) -> Rel:
    a = q.child(depth)
    items = [expression(q.random, a.cols) for _ in range(q.random.choice((1, 2)))]
    return q.select([*q.pick(a.cols, 3), *items], f"FROM {a.sql}{q.where(a.cols)}")


def composite(q: Queries, depth: int) -> Rel:
    a = q.child(depth)
    items = [*q.pick(a.cols, 3), compound(q.random, a.cols)]
    return q.select(items, f"FROM {a.sql}{q.where(a.cols)}")


def distinct(q: Queries, depth: int) -> Rel:
    a = q.child(depth)
    return q.select(q.pick(a.cols, 3), f"FROM {a.sql}{q.where(a.cols)}", "DISTINCT ")


def explode(q: Queries, depth: int) -> Rel:
    a = q.child(depth)
    rel = q.select(q.pick(a.cols, 3), f"FROM {a.sql}{q.where(a.cols)}")
    array, kind = _array(q, a.cols)
    name = q.name("c")
    function = q.random.choice(("explode", "explode", "explode_outer"))
    head, _, rest = rel.sql.partition(" FROM ")
    return Rel(f"{head}, {function}({array}) AS {name} FROM {rest}", (*rel.cols, Col(name, kind)))


def lateral_view(q: Queries, depth: int, outer: str = "") -> Rel:
    a = q.child(depth)
    array, kind = _array(q, a.cols)
    alias, value = q.name("e"), q.name("x")
    view, new = f"explode({array}) {alias} AS {value}", (Col(f"{alias}.{value}", kind),)
    if q.chance(0.3):
        place = q.name("p")
        view = f"posexplode({array}) {alias} AS {place}, {value}"
        new = (*new, Col(f"{alias}.{place}", "int"))
    cols = (*a.cols, *new)
    items = [*q.pick(a.cols, 3), *new]
    return q.select(items, f"FROM {a.sql} LATERAL VIEW {outer}{view}{q.where(cols)}")


def _array(q: Queries, cols: Cols) -> tuple[str, str]:
    arrays, numbers = of(cols, "arr"), of(cols, "int")
    if arrays and q.chance(0.8):
        return q.random.choice(arrays).text, "int"
    if numbers:
        return f"array({', '.join(q.random.choice(numbers).text for _ in range(2))}, 5)", "int"
    return "array(1, 2)", "int"


def limit(q: Queries, depth: int) -> Rel:
    a = q.child(depth)
    rel = q.select(q.pick(a.cols, 3), f"FROM {a.sql}{q.where(a.cols)}")
    offset = f" OFFSET {q.random.choice((1, 2))}" if q.chance(0.3) else ""
    return Rel(
        f"{rel.sql} ORDER BY {q.order(rel.cols)} LIMIT {q.random.choice((1, 2, 4))}{offset}",
        rel.cols,
    )


# -- groups --------------------------------------------------------------------------------------


def group(family: str) -> Operator:
    def made(q: Queries, depth: int) -> Rel:
        a = q.child(depth)
        keys = q.keys(a.cols)
        shown = [key for key in keys if q.chance(0.9)]
        group = f" GROUP BY {', '.join(key.text for key in keys)}"
        return q.select(
            [*shown, *q.calls(a.cols, family)], f"FROM {a.sql}{q.where(a.cols)}{group}"
        )

    return made


def group_expression(q: Queries, depth: int) -> Rel:
    """Keys that are expressions, and expressions over aggregates."""
    a = q.child(depth)
    key = expression(q.random, a.cols)
    calls = q.calls(a.cols)
    above = [Col(f"COALESCE({c.text}, 0) + 1", c.kind) if c.kind in NUMBERS else c for c in calls]
    if len(above) > 1 and {above[0].kind, above[1].kind} <= NUMBERS:
        above.append(Col(f"CASE WHEN {calls[0].text} > {calls[1].text} THEN 1 ELSE 0 END", "int"))
    return q.select([key, *above], f"FROM {a.sql}{q.where(a.cols)} GROUP BY {key.text}")


def whole(q: Queries, depth: int) -> Rel:
    a = q.child(depth)
    family = q.random.choice(("", "", *FAMILIES))
    having = f" HAVING COUNT(*) > {q.random.choice((0, 1, 3))}" if q.chance(0.15) else ""
    return q.select(q.calls(a.cols, family), f"FROM {a.sql}{q.where(a.cols)}{having}")


def having(q: Queries, depth: int) -> Rel:
    a = q.child(depth)
    keys, calls = q.keys(a.cols), q.calls(a.cols)
    tested = [c for c in (*calls, call(q.random, a.cols, "basic")) if c.kind in COMPARABLE]
    tested = tested or [Col("COUNT(*)", "big")]
    group = ", ".join(key.text for key in keys)
    having = predicate(q.random, (*tested, *[k for k in keys if k.kind in COMPARABLE]))
    return q.select(
        [*keys, *calls], f"FROM {a.sql}{q.where(a.cols)} GROUP BY {group} HAVING {having}"
    )


def grouping_sets(form: str) -> Operator:
    def made(q: Queries, depth: int) -> Rel:
        a = q.child(depth)
        keys = q.keys(a.cols, 3)
        names = [key.text for key in keys]
        listed = ", ".join(names)
        group = f"{form}({listed})"
        if form == "GROUPING SETS":
            sets = [f"({listed})", f"({names[0]})", "()", f"({names[-1]})"]
            chosen = list(dict.fromkeys([sets[0], *q.random.sample(sets, 2)]))
            group = f"GROUPING SETS ({', '.join(chosen)})"
        elif len(names) > 1 and q.chance(0.2):
            group = f"{names[0]}, {form}({', '.join(names[1:])})"
        items = [*keys, *q.calls(a.cols)]
        if q.chance(0.4):
            items.append(Col(f"grouping({q.random.choice(names)})", "any"))
        if q.chance(0.3):
            items.append(Col(f"grouping_id({listed})", "big"))
        having = " HAVING COUNT(*) > 1" if q.chance(0.15) else ""
        return q.select(items, f"FROM {a.sql}{q.where(a.cols)} GROUP BY {group}{having}")

    return made


# -- windows -------------------------------------------------------------------------------------


def window(kind: str) -> Operator:
    def made(q: Queries, depth: int) -> Rel:
        a = q.child(depth)
        calls = [_over(q, a.cols, kind, q.keys(a.cols) if q.chance(0.92) else [])]
        if kind == "two" or q.chance(0.15):
            calls.append(_over(q, a.cols, kind, q.keys(a.cols)))
        return q.select([*q.pick(a.cols), *calls], f"FROM {a.sql}{q.where(a.cols)}")

    return made


def _over(q: Queries, cols: Cols, kind: str, keys: list[Col]) -> Col:
    part = f"PARTITION BY {', '.join(key.text for key in keys)} " if keys else ""
    total = f"{part}ORDER BY {q.order(cols)}"
    if kind == "two":
        kind = q.random.choice(("rank", "sum", "frame"))
    some = q.random.choice(cols)
    ties = f"{part}ORDER BY {some.text}"
    if kind == "rank":
        function = q.random.choice(("row_number()", "row_number()", "rank()", "dense_rank()"))
        return Col(f"{function} OVER ({total if function[1] == 'o' else ties})", "int")
    if kind == "shift":
        function = q.random.choice(("lag", "lead"))
        return Col(f"{function}({some.text}, {q.random.choice((1, 2))}) OVER ({total})", some.kind)
    if kind == "value":
        function = q.random.choice(("first_value", "last_value"))
        return Col(f"{function}({some.text}) OVER ({total})", some.kind)
    made = call(q.random, cols, "basic")
    if kind == "sum":
        return Col(f"{made.text} OVER ({q.random.choice((part, part, ties))})", made.kind)
    frame = q.random.choice(
        (
            "ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW",
            "ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING",
            "ROWS BETWEEN 2 PRECEDING AND 1 PRECEDING",
            "ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING",
        )
    )
    return Col(f"{made.text} OVER ({total} {frame})", made.kind)


def window_over_group(q: Queries, depth: int) -> Rel:
    """Windows whose rows are groups of the same block."""
    a = q.child(depth)
    keys = q.keys(a.cols, 3)
    counted = call(q.random, a.cols, "basic")
    part = f"PARTITION BY {keys[-1].text} " if len(keys) > 1 and q.chance(0.7) else ""
    order = ", ".join(f"{key.text}{q.random.choice(('', ' DESC'))}" for key in keys)
    window = q.random.choice(
        (
            Col(f"SUM(COUNT(*)) OVER ({part})", "big"),
            Col(f"row_number() OVER ({part}ORDER BY {order})", "int"),
            Col(f"lag(COUNT(*)) OVER ({part}ORDER BY {order})", "big"),
        )
    )
    group = ", ".join(key.text for key in keys)
    return q.select([*keys, counted, window], f"FROM {a.sql}{q.where(a.cols)} GROUP BY {group}")


def qualify(q: Queries, depth: int) -> Rel:
    a = q.child(depth)
    over = _over(q, a.cols, "rank", q.keys(a.cols))
    return q.select(
        q.pick(a.cols),
        f"FROM {a.sql}{q.where(a.cols)} QUALIFY {over.text} <= {q.random.choice((1, 2))}",
    )


def top(q: Queries, depth: int, most: int = 2) -> Rel:
    """The first rows of each group."""
    a = q.child(depth)
    keys = ", ".join(key.text for key in q.keys(a.cols))
    order = f"PARTITION BY {keys} ORDER BY {q.order(a.cols)}"
    rank, alias = q.name("n"), q.name("r")
    rel = q.select(q.pick(a.cols), f"FROM {a.sql}")
    inner = rel.sql.replace(" FROM ", f", row_number() OVER ({order}) AS {rank} FROM ", 1)
    test = f"{alias}.{rank} = 1" if most == 1 else f"{alias}.{rank} <= {most}"
    return q.select(list(under(alias, rel.cols)), f"FROM ({inner}) {alias} WHERE {test}")
