"""A wide table as one query: the union of all branches, grouped by key.

The row of a branch travels in one column, a struct that is NULL in the rows of all other branches:
with many columns the union would be mostly NULLs. With p_b the struct that branch b has for a key

    wide = { key, f(p_1, p_2, …) : some p_b is there }      (with an anchor a: p_a is there)

where f takes an owned column from its branch and combines what several branches write.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dbt_streamsql.plan.algebra.expression import escape
from dbt_streamsql.plan.algebra.relational import Branches, Merge
from dbt_streamsql.plan.algebra.schema import HIDDEN_PREFIX, Column
from dbt_streamsql.plan.program.wide_keys import no_key_sql, several_sql
from dbt_streamsql.quoting import literal, quote

Cell = Callable[[int, int], str]
"""What a branch has written: (number of the branch, number of its target) -> SQL."""

Has = Callable[[int], str]
"""Whether a branch has the key, as SQL."""

_UNSAFE = re.compile(r"\W+")


@dataclass(frozen=True)
class Layout:
    """Where a wide table is stored: for each branch its row counter and its cells.

    `cells` are visible columns where a branch owns them, otherwise hidden ones. `claims` counts
    the branches that have the key.
    """

    rows: tuple[str, ...]
    cells: tuple[tuple[str, ...], ...]
    claims: str


def layout(node: Branches) -> Layout:
    """The stored columns of a wide table."""
    taken: set[str] = set()

    def hidden(wanted: str) -> str:
        base = HIDDEN_PREFIX + _UNSAFE.sub("_", wanted).lower()
        name, number = base, 2
        while name in taken:
            name, number = f"{base}_{number}", number + 1
        taken.add(name)
        return name

    merged = {merge.column for merge in node.merges}
    claims = hidden("claims")
    rows = tuple(hidden(f"rows_{name}") for name in node.names)
    cells = tuple(
        tuple(
            path if path not in merged and "." not in path else hidden(f"{name}__{path}")
            for path in targets
        )
        for name, targets in zip(node.names, node.targets, strict=True)
    )
    return Layout(rows, cells, claims)


def values(node: Branches, cell: Cell, has: Has) -> dict[str, str]:
    """The value of each column other than the key."""
    return {column: _value(node, column, cell, has) for column in node.columns[len(node.keys) :]}


def branches_sql(node: Branches, sides: Sequence[str], *, hidden: bool) -> str:
    """The wide table over the `sides`: queries of the keys `k0` … and the packed rows `p0` ….

    `hidden`: with all stored columns. The text is a template, and so are the sides.
    """

    def cell(branch: int, target: int) -> str:
        return f"w.p{branch}.c{target}"

    def has(branch: int) -> str:
        return f"w.p{branch} IS NOT NULL"

    numbers = range(len(node.inputs))
    items = [f"w.k{at} AS {_name(key)}" for at, key in enumerate(node.keys)]
    items += [f"{sql} AS {_name(name)}" for name, sql in values(node, cell, has).items()]
    if hidden:
        at = layout(node)
        there = [f"IF({has(number)}, 1L, 0L)" for number in numbers]
        items += [f"{sql} AS {_name(at.rows[number])}" for number, sql in enumerate(there)]
        items.append(f"{' + '.join(there)} AS {_name(at.claims)}")
        items += [
            f"{cell(branch, target)} AS {_name(name)}"
            for branch, names in enumerate(at.cells)
            for target, name in enumerate(names)
            if name.startswith(HIDDEN_PREFIX)
        ]
    keys = [f"k{at}" for at in range(len(node.keys))]
    packs = [f"any_value(p{n}, true) AS p{n}, count(p{n}) AS n{n}" for n in numbers]
    shown = [f"w.{key}" for key in keys]
    wrong = " ".join(
        f"WHEN w.n{number} > 1 THEN CAST({escape(several_sql(name, shown))} AS BOOLEAN)"
        for number, name in enumerate(node.names)
    )
    where = f"CASE {wrong} END IS NULL"
    if node.anchor:
        where = f"{has(node.names.index(node.anchor))} AND {where}"
    listed, union = ",\n  ".join(items), "\nUNION ALL\n".join(sides)
    return (
        f"SELECT\n  {listed}\nFROM (\n  SELECT {', '.join([*keys, *packs])}\n  FROM (\n{union}\n"
        f"  ) u\n  GROUP BY {', '.join(keys)}\n) w\nWHERE {where}"
    )


def key_sql(node: Branches, branch: int, at: int, value: str) -> str:
    """A key column of a branch, which may not be NULL, cast to the type in the wide table."""
    checked = f"coalesce({value}, {escape(no_key_sql(node.names[branch], node.keys[at]))})"
    return f"CAST({checked} AS {node.key_types[at]})"


def sum_type(kind: str) -> str:
    """The result type of Spark's SUM over values of a type ('' = it cannot be summed)."""
    column = Column("", kind)
    if column.is_integer:
        return "bigint"
    if column.decimal is not None:
        precision, scale = column.decimal
        return f"decimal({min(precision + 10, 38)},{scale})"
    return "double" if kind in ("float", "double") else ""


def pack_sql(cells: Sequence[str]) -> str:
    """The cells of a branch as one value that is not NULL."""
    named = [f"{literal(f'c{at}')}, {sql}" for at, sql in enumerate(cells)] or ["'c', 1"]
    return f"named_struct({', '.join(named)})"


def side_sql(node: Branches, branch: int, rows: str) -> str:
    """One side of the union: the `rows` of a branch, a SELECT of the columns of its input."""
    columns = [f"r.{_name(column)}" for column in node.inputs[branch].node.columns]
    width = len(node.keys)
    keys = [f"{key_sql(node, branch, at, columns[at])} AS k{at}" for at in range(width)]
    packs = [
        f"{pack_sql(columns[width:])} AS p{n}" if n == branch else f"NULL AS p{n}"
        for n in range(len(node.inputs))
    ]
    return f"SELECT {', '.join([*keys, *packs])} FROM (\n{rows}\n) r"


# -- the value of a column ---------------------------------------------------------------------


def _value(node: Branches, path: str, cell: Cell, has: Has) -> str:
    """The value of a column or of a field: written by a branch, or assembled from its fields."""
    merge = next((merge for merge in node.merges if merge.column == path), None)
    if merge is not None:
        return _merged(node, merge, cell, has)
    for branch, targets in enumerate(node.targets):
        if path in targets:
            return cell(branch, targets.index(path))
    fields = dict.fromkeys(
        each.removeprefix(f"{path}.").split(".")[0]
        for targets in node.targets
        for each in targets
        if each.startswith(f"{path}.")
    )
    owners = [
        has(branch)
        for branch, targets in enumerate(node.targets)
        if any(each.startswith(f"{path}.") for each in targets)
    ]
    items = ", ".join(
        f"{escape(literal(name))}, {_value(node, f'{path}.{name}', cell, has)}" for name in fields
    )
    return f"CASE WHEN {' OR '.join(owners)} THEN named_struct({items}) END"


def _merged(node: Branches, merge: Merge, cell: Cell, has: Has) -> str:
    at = [(n, node.targets[n].index(merge.column)) for n in map(node.names.index, merge.branches)]
    cells = [cell(*place) for place in at]
    some = " OR ".join(f"{value} IS NOT NULL" for value in cells)
    function = merge.function
    if function in ("last_value", "last_non_null_value"):
        says = [
            has(branch) if function == "last_value" else f"{value} IS NOT NULL"
            for (branch, _), value in zip(at, cells, strict=True)
        ]
        if merge.sequence:
            return _latest(node, merge.sequence, at, cells, says, cell)
        cases = " ".join(f"WHEN {c} THEN {v}" for c, v in zip(says, cells, strict=True))
        return f"CASE {cases} END"
    if function == "count":
        return " + ".join(f"IF({value} IS NULL, 0L, 1L)" for value in cells)
    if function == "collect":
        return f"array_compact(array({', '.join(cells)}))"
    if function == "listagg":
        texts = ", ".join(f"CAST({value} AS STRING)" for value in cells)
        return f"CASE WHEN {some} THEN array_join(array_compact(array({texts})), ',') END"
    if function == "sum":
        kind = sum_type(_widest(node, at))
        terms = " + ".join(f"coalesce(CAST({value} AS {kind}), 0)" for value in cells)
        return f"CASE WHEN {some} THEN CAST({terms} AS {kind}) END"
    if len(cells) == 1:
        return cells[0]
    return f"{'least' if function == 'min' else 'greatest'}({', '.join(cells)})"


def _latest(
    node: Branches,
    sequence: str,
    at: Sequence[tuple[int, int]],
    cells: Sequence[str],
    says: Sequence[str],
    cell: Cell,
) -> str:
    """The value of the branch with the greatest sequence; on ties the first declared branch."""
    stamps = [cell(branch, node.targets[branch].index(sequence)) for branch, _ in at]
    offers = ", ".join(
        f"IF({says_}, struct({stamp} AS s, {-number} AS b), NULL)"
        for number, (says_, stamp) in enumerate(zip(says, stamps, strict=True))
    )
    cases = " ".join(f"WHEN {-number} THEN {value}" for number, value in enumerate(cells))
    return f"CASE array_max(array({offers})).b {cases} END"


def _widest(node: Branches, at: Sequence[tuple[int, int]]) -> str:
    """The type of a column that several branches write and sum."""
    kinds = [node.types[branch][target] for branch, target in at]
    if any(kind in ("float", "double") for kind in kinds):
        return "double"
    decimals = [found for kind in kinds if (found := Column("", kind).decimal) is not None]
    if decimals:
        # Nineteen digits hold every BIGINT.
        whole = max([p - s for p, s in decimals] + [19] * (len(decimals) < len(kinds)))
        scale = max(s for _, s in decimals)
        return f"decimal({min(38, whole + scale)},{scale})"
    return "bigint"


def _name(column: str) -> str:
    return escape(quote(column))
