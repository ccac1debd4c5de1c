"""PIVOT and UNPIVOT, where DuckDB and Spark mean the same by them.

A count of numbers alone is left out (over no rows it is NULL in Spark, 0 in DuckDB), as are
several columns to a row in UNPIVOT; both are checked on Spark.
"""

from __future__ import annotations

from tests.differential.duck_queries import Queries, Rel
from tests.differential.duck_terms import JOINABLE, Col, literal

_NUMBERS = ("int", "big", "dec")


def pivot(q: Queries, depth: int) -> Rel:
    a = q.child(depth)
    pivoted = [col for col in a.cols if col.kind in {"int", "big", "str", "date"}]
    summed = [col for col in a.cols if col.kind in _NUMBERS]
    if not pivoted or not summed:
        return q.select(q.pick(a.cols), f"FROM {a.sql}")
    p, x = q.random.choice(pivoted), q.random.choice(summed)
    keys = q.random.sample(a.cols, min(len(a.cols), q.random.choice((0, 1, 1, 2))))
    keys = [key for key in keys if key.kind in JOINABLE and key.kind != "dbl"]
    base = q.select([*keys, p, x], f"FROM {a.sql}{q.where(a.cols)}")
    names = [col.text for col in base.cols]
    if len(set(names)) < len(names):
        return base
    values = list(dict.fromkeys(literal(q.random, p.kind) for _ in range(3)))
    values += ["NULL"] if q.chance(0.2) else []
    labels = [q.name("p") for _ in values]
    listed = ", ".join(f"{v} AS {name}" for v, name in zip(values, labels, strict=True))
    low = Col(f"{q.random.choice(('MIN', 'MAX'))}({names[-1]})", base.cols[-1].kind)
    calls = [("", low)]
    if q.chance(0.4) and p.kind not in _NUMBERS:
        texts = q.select([*keys, p, p, x], f"FROM {a.sql}{q.where(a.cols)}")
        base, names = texts, [col.text for col in texts.cols]
        calls = [
            ("m", Col(f"MAX({names[-3]})", p.kind)),
            ("n", Col(f"COUNT({names[-1]})", "big")),
        ]
    if len(set(names)) < len(names):
        return base
    aggregates = ", ".join(f"{c.text} AS {name}" if name else c.text for name, c in calls)
    made = tuple(
        Col(f"{label}_{name}" if name else label, c.kind) for label in labels for name, c in calls
    )
    column = names[-2]
    text = f"FROM ({base.sql}) {q.name('r')} PIVOT ({aggregates} FOR {column} IN ({listed}))"
    return q.select([*base.cols[: len(keys)], *made[:3]], text)


def unpivot(q: Queries, depth: int) -> Rel:
    a = q.child(depth)
    kinds = {col.kind for col in a.cols}
    kind = q.random.choice(sorted(kinds & {"int", "big", "str", "date", "ts", "bool"} or kinds))
    same = [col for col in a.cols if col.kind == kind]
    chosen = q.random.sample(same, min(len(same), 3))
    keys = [col for col in a.cols if col not in chosen][:2]
    base = q.select([*keys, *chosen], f"FROM {a.sql}{q.where(a.cols)}")
    names = [col.text for col in base.cols]
    if len(set(names)) < len(names):
        return base
    name, value = q.name("n"), q.name("u")
    nulls = q.random.choice(("", "INCLUDE NULLS "))
    listed = ", ".join(f"{c} AS {q.name('x')}" if q.chance(0.4) else c for c in names[len(keys) :])
    text = f"FROM ({base.sql}) {q.name('r')} UNPIVOT {nulls}({value} FOR {name} IN ({listed}))"
    return q.select([*base.cols[: len(keys)], Col(name, "str"), Col(value, kind)], text)
