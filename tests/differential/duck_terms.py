"""Scalar expressions, predicates and aggregate calls over typed columns, as Spark SQL."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

NUMBERS = frozenset({"int", "big"})
EXACT = frozenset({"int", "big", "dec", "dbl"})
"""Kinds whose sums do not depend on the order of addition (`dbl` holds quarters)."""
KINDS = {
    "int": "int",
    "bigint": "big",
    "string": "str",
    "decimal(10,2)": "dec",
    "boolean": "bool",
    "date": "date",
    "double": "dbl",
    "timestamp": "ts",
    "array<int>": "arr",
    "struct<a:int,b:string>": "st",
}
"""Spark type -> kind. `avg` is a double that is not exact, `any` only passes through."""
JOINABLE = frozenset({"int", "big", "str", "date", "dec", "ts", "dbl", "bool"})
COMPARABLE = JOINABLE | {"avg"}


@dataclass(frozen=True)
class Col:
    """A column as it is written where it is used."""

    text: str
    kind: str


Cols = tuple[Col, ...]


def of(cols: Cols, *kinds: str) -> list[Col]:
    return [col for col in cols if col.kind in kinds]


def literal(random: Random, kind: str) -> str:
    """A value of a kind that is not NULL."""
    if kind in {"int", "big"}:
        return str(random.choice((0, 1, 1, 2, 3)))
    if kind == "str":
        return f"'{random.choice(('a', 'b', 'c', ''))}'"
    if kind == "dec":
        return f"{random.randint(-2, 2)}.{random.choice(('00', '25', '50'))}"
    if kind in {"dbl", "avg"}:
        return f"{random.randint(-4, 8) / 4}D"
    if kind == "date":
        return f"DATE '2024-01-0{random.randint(1, 4)}'"
    if kind == "ts":
        return f"TIMESTAMP '2024-01-01 0{random.randint(0, 3)}:30:00'"
    return random.choice(("true", "false"))


def predicate(random: Random, cols: Cols, depth: int = 1) -> str:
    """A condition over some of the columns."""
    if depth and random.random() < 0.25:
        left, right = (predicate(random, cols, depth - 1) for _ in range(2))
        return random.choice((f"({left} AND {right})", f"({left} OR {right})", f"NOT ({left})"))
    usable = of(cols, *COMPARABLE)
    if not usable:
        return f"{random.choice(cols).text} IS NOT NULL"
    col = random.choice(usable)
    chance = random.random()
    if chance < 0.15:
        return f"{col.text} IS {random.choice(('', 'NOT '))}NULL"
    if chance < 0.27:
        items = [literal(random, col.kind), literal(random, col.kind)]
        items += ["NULL"] if random.random() < 0.3 else []
        return f"{col.text} {random.choice(('', '', 'NOT '))}IN ({', '.join(items)})"
    if chance < 0.32:
        return f"{col.text} BETWEEN {literal(random, col.kind)} AND {literal(random, col.kind)}"
    others = [other for other in of(usable, col.kind) if other != col]
    right = literal(random, col.kind)
    if others and random.random() < 0.35:
        right = random.choice(others).text
    operator = random.choice(("=", "<>", "<", "<=", ">", ">=", ">=", "<=>"))
    return f"{col.text} {operator} {right}"


def equality(random: Random, left: Cols, right: Cols) -> str:
    """`a = b` of columns of one kind ('' when there are none), seldom null-safe."""
    pairs = [(a, b) for a in left for b in right if a.kind == b.kind and a.kind in JOINABLE]
    if not pairs:
        return ""
    good = [pair for pair in pairs if pair[0].kind in {"int", "big", "str"}] or pairs
    a, b = random.choice(good)
    return f"{a.text} {'<=>' if random.random() < 0.15 else '='} {b.text}"


def condition(random: Random, left: Cols, right: Cols, residual: float = 0.35) -> str:
    """A join condition: mostly an equality, at times with more, at times without any."""
    terms = [equality(random, left, right)] if random.random() < 0.9 else []
    if random.random() < 0.2:
        terms.append(equality(random, left, right))
    if random.random() < residual or not any(terms):
        terms.append(_theta(random, left, right))
    return " AND ".join(dict.fromkeys(term for term in terms if term))


def _theta(random: Random, left: Cols, right: Cols) -> str:
    pairs = [(a, b) for a in left for b in right if a.kind == b.kind and a.kind in COMPARABLE]
    if pairs and random.random() < 0.6:
        a, b = random.choice(pairs)
        return f"{a.text} {random.choice(('<', '<=', '>=', '<>'))} {b.text}"
    return predicate(random, random.choice((left, right)), 0)


def expression(random: Random, cols: Cols) -> Col:
    """A scalar expression with its kind."""
    col = random.choice(cols)
    made = _by_kind(random, col, cols)
    return Col(*random.choice(made)) if made else col


def _by_kind(random: Random, col: Col, cols: Cols) -> list[tuple[str, str]]:
    x, kind = col.text, col.kind
    same = random.choice(of(cols, kind)).text
    if kind in NUMBERS:
        return [
            (f"{x} + 1", kind),
            (f"{x} * 2 - {same}", kind),
            (f"CASE WHEN {x} > 1 THEN {x} ELSE {same} END", kind),
            (f"COALESCE({x}, {same}, 0)", kind),
            (f"IF({x} IS NULL, 7, {same})", kind),
            (f"NULLIF({x}, 1)", kind),
            (f"ABS({x} - 2)", kind),
            (f"CAST({x} AS STRING)", "str"),
            (f"CAST({x} AS BIGINT)", "big"),
            (f"{x} > {same}", "bool"),
            (f"{x} % 2", kind),
            (f"greatest({x}, {same})", kind),
        ]
    if kind == "str":
        return [
            (f"concat({x}, '{{x}}')", "str"),
            (f"COALESCE({x}, 'none')", "str"),
            (f"upper({x})", "str"),
            (f"CASE {x} WHEN 'a' THEN 1 WHEN 'b' THEN 2 END", "int"),
            (f"length({x})", "int"),
            (f"{x} = {same}", "bool"),
        ]
    if kind == "date":
        return [(f"date_add({x}, 1)", "date"), (f"day({x})", "int"), (f"{x} < {same}", "bool")]
    if kind == "arr":
        return [(f"size({x})", "int"), (f"array_contains({x}, 1)", "bool"), (x, "arr")]
    if kind == "st":
        return [(f"{x}.a", "int"), (f"{x}.b", "str"), (x, "st")]
    if kind == "bool":
        return [(f"NOT {x}", "bool"), (f"CASE WHEN {x} THEN 1 ELSE 0 END", "int")]
    if kind in {"dec", "dbl"}:
        return [(f"COALESCE({x}, {literal(random, kind)})", kind), (f"{x} > {same}", "bool")]
    return []


def compound(random: Random, cols: Cols) -> Col:
    """A struct or an array of columns."""
    numbers, texts = of(cols, "int"), of(cols, "str")
    if numbers and texts and random.random() < 0.5:
        a, b = random.choice(numbers).text, random.choice(texts).text
        return Col(f"named_struct('a', {a}, 'b', {b})", "st")
    if numbers:
        return Col(f"array({', '.join(random.choice(numbers).text for _ in range(2))})", "arr")
    return expression(random, cols)


# -- aggregates ----------------------------------------------------------------------------------

FAMILIES = ("basic", "distinct", "filter", "statistics", "logic", "by", "order", "collect")


def call(random: Random, cols: Cols, family: str) -> Col:
    """An aggregate call of a family; a basic one when no column fits."""
    made = _CALLS[family](random, cols)
    return made or _basic(random, cols)


def _basic(random: Random, cols: Cols) -> Col:
    if random.random() < 0.25:
        return Col("COUNT(*)", "big")
    col = random.choice(cols)
    options = [(f"COUNT({col.text})", "big")]
    if col.kind in COMPARABLE:
        options += [(f"MIN({col.text})", col.kind), (f"MAX({col.text})", col.kind)]
    if col.kind in NUMBERS:
        options += [(f"SUM({col.text})", "big")] * 2 + [(f"AVG({col.text})", "avg")]
    elif col.kind == "dec":
        options += [(f"SUM({col.text})", "any")] * 2
    elif col.kind == "dbl":
        options += [(f"SUM({col.text})", "dbl")] * 2 + [(f"AVG({col.text})", "avg")]
    return Col(*random.choice(options))


def _distinct(random: Random, cols: Cols) -> Col | None:
    usable = of(cols, *JOINABLE)
    if not usable:
        return None
    col = random.choice(usable)
    options = [(f"COUNT(DISTINCT {col.text})", "big")] * 2
    if col.kind in NUMBERS:
        options += [(f"SUM(DISTINCT {col.text})", "big"), (f"AVG(DISTINCT {col.text})", "avg")]
    if len(usable) > 1:
        pair = ", ".join(c.text for c in random.sample(usable, 2))
        options.append((f"COUNT(DISTINCT {pair})", "big"))
    return Col(*random.choice(options))


def _filter(random: Random, cols: Cols) -> Col:
    made = _basic(random, cols)
    return Col(f"{made.text} FILTER (WHERE {predicate(random, cols, 0)})", made.kind)


def _statistics(random: Random, cols: Cols) -> Col | None:
    usable = of(cols, *NUMBERS)
    if not usable:
        return None
    x, y = random.choice(usable).text, random.choice(usable).text
    one = ("stddev", "stddev_pop", "stddev_samp", "var_pop", "var_samp", "variance")
    two = ("corr", "covar_pop", "covar_samp")
    if random.random() < 0.6:
        return Col(f"{random.choice(one)}({x})", "avg")
    return Col(f"{random.choice(two)}({x}, {y})", "avg")


def _logic(random: Random, cols: Cols) -> Col | None:
    flags, numbers = of(cols, "bool"), of(cols, *NUMBERS)
    options = []
    if flags:
        x = random.choice(flags).text
        options += [(f"{f}({x})", "bool") for f in ("bool_and", "bool_or", "every", "some")]
    if numbers:
        x = random.choice(numbers)
        options += [(f"{f}({x.text})", x.kind) for f in ("bit_and", "bit_or", "bit_xor")]
        options.append((f"count_if({x.text} > 1)", "big"))
    return Col(*random.choice(options)) if options else None


def _by(random: Random, cols: Cols) -> Col | None:
    """The order is of whole rows: rows that tie are equal."""
    usable = of(cols, *JOINABLE)
    if not usable:
        return None
    first = random.choice(usable)
    order = [first, *(col for col in cols if col != first)]
    fields = ", ".join(f"'o{i}', {col.text}" for i, col in enumerate(order))
    value = random.choice(cols)
    return Col(
        f"{random.choice(('max_by', 'min_by'))}({value.text}, named_struct({fields}))", value.kind
    )


def _order(random: Random, cols: Cols) -> Col | None:
    usable = of(cols, *NUMBERS)
    if not usable:
        return None
    x = random.choice(usable).text
    return Col(
        random.choice((f"percentile({x}, 0.25)", f"percentile({x}, 0.5)", f"median({x})")), "avg"
    )


def _collect(random: Random, cols: Cols) -> Col | None:
    usable = of(cols, "int", "str", "date")
    if not usable:
        return None
    col = random.choice(usable)
    function = random.choice(("collect_list", "collect_set"))
    return Col(f"sort_array({function}({col.text}))", "arr" if col.kind == "int" else "any")


_CALLS = {
    "basic": _basic,
    "distinct": _distinct,
    "filter": _filter,
    "statistics": _statistics,
    "logic": _logic,
    "by": _by,
    "order": _order,
    "collect": _collect,
}
