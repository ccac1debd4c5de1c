"""The correct content of a view with expiring state after one more epoch, from all input rows.

The definition of docs/state_ttl.md as one query, for `verify`: with R and R' the rows of the view
before and after, S and S' the input rows before and after that are remembered at the later
barrier, and Q the query, it returns the signed rows

    R + Q(S') − Q(S) − R'                       views of rows
    (Q(S') − R') of the keys that changed       views recomputed key by key
    fold(R, S' − S) − R'                        stored groups

which cancel when the view is correct. It uses nothing of the view's program.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from dbt_streamsql.compiler.codegen.render_sql import Source, listed, render
from dbt_streamsql.compiler.lowering.view import View, keyed_view, under_names
from dbt_streamsql.compiler.rules.fold import FoldedGroups, folded_groups
from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.plan.algebra.expression import escape, fill
from dbt_streamsql.plan.algebra.relational import (
    CLOCK,
    Aggregate,
    Node,
    Output,
    Scan,
    children,
    keys_of,
    with_children,
)
from dbt_streamsql.plan.algebra.schema import WEIGHT
from dbt_streamsql.plan.compiled import CompiledPlan
from dbt_streamsql.plan.moments import AFTER, BEFORE, Moments
from dbt_streamsql.plan.program.fold_values import WRITTEN
from dbt_streamsql.plan.tree_json import node_of
from dbt_streamsql.quoting import quote


def difference(plan: CompiledPlan, at: Moments) -> tuple[tuple[str, ...], str]:
    """The stored columns of a view, except for write times, and a SELECT of them and of the
    weight: the expected rows minus the actual ones. They are not consolidated.

    Error: STATE_FORGOTTEN when the rows do not determine the correct result.
    """
    view = View(_placed(node_of(plan.tree), iter(range(len(plan.reads)))), plan.columns)
    folds = folded_groups(view) if plan.strategy == "fold" else None
    if folds is not None and not folds.node.input.columns:
        raise StreamSqlError(
            "STATE_FORGOTTEN",
            f"{plan.table} counts rows without any of their columns",
            given="a comparison of a count that may have restarted",
            hint="`dbt run --full-refresh` of the view makes it equal to its query again",
        )
    columns = (*plan.columns, *plan.hidden)
    names = tuple(column.name for column in columns if column.name != WRITTEN)
    if folds is not None:
        text = _groups(folds, names, at.clock)
    else:
        text = (_of_rows if plan.strategy == "rows" else _computed_again)(view, names)

    def resolve(hole: str) -> str:
        moment, _, what = hole.partition("_")
        if what == "view":
            return at.view(moment)
        return at.now(moment) if what == "now" else at.rows(moment, int(what))

    return names, fill(text, resolve)


def _placed(node: Node, places: Iterator[int]) -> Node:
    """The tree with its scans named by position."""
    if isinstance(node, Scan):
        return node if node.table == CLOCK else replace(node, table=str(next(places)))
    return with_children(node, tuple(_placed(child, places) for child in children(node)))


def _at(moment: str) -> Source:
    return lambda scan: f"{{{moment}_{'now' if scan.table == CLOCK else scan.table}}}"


# -- the three shapes of a view -----------------------------------------------------------------


def _of_rows(view: View, names: tuple[str, ...]) -> str:
    query = under_names(view.root, view.columns)
    return _sum(
        names,
        (1, f"(\n{render(query, _at(AFTER))}\n)"),
        (-1, f"(\n{render(query, _at(BEFORE))}\n)"),
        (1, f"{{{BEFORE}_view}}"),
        (-1, f"{{{AFTER}_view}}"),
    )


def _computed_again(view: View, names: tuple[str, ...]) -> str:
    """For the keys whose rows changed, and the keys that the view has changed."""
    node, select, key = keyed_view(view)
    shown = zip(view.columns, select.outputs, strict=True)
    outputs = (*(Output(column.name, output.expr) for column, output in shown), *key.hidden)
    query = render(replace(select, outputs=outputs), _at(AFTER))
    pairs = list(zip(keys_of(node), key.columns, strict=True))
    moved = ", ".join(f"{_name(old)} AS {_name(new)}" for old, new in pairs) or "1 AS one"
    stored = listed(key.columns) or "1 AS one"
    written = _sum(names, (1, f"{{{AFTER}_view}}"), (-1, f"{{{BEFORE}_view}}"))
    keys = (
        f"(SELECT {moved} FROM (\n{_moved(node.input)}\n)\n"
        f"UNION SELECT {stored} FROM (\n{_net(names, written)}\n))"
    )
    on = _same("r", "k", key.columns)
    parts = ((1, f"(\n{query}\n)"), (-1, f"{{{AFTER}_view}}"))
    return _sum(
        names,
        *((sign, f"(SELECT r.* FROM {rows} r LEFT SEMI JOIN {keys} k ON {on})")
          for sign, rows in parts),
    )  # fmt: skip


def _groups(found: FoldedGroups, names: tuple[str, ...], clock: int) -> str:
    """Groups that changed: from the stored ones, unless they have expired, and the change."""
    node, stored = found.node, found.key.columns
    keys = [f"k{n}" for n in range(len(stored))]
    touched = f"SELECT DISTINCT {_keys(node) or '1 AS one'} FROM net i"
    expired = f" WHERE {WRITTEN} >= {int(clock - node.ttl * 1000)}L" if node.ttl else ""
    known = [f"{_name(name)} AS {key}" for name, key in zip(stored, keys, strict=True)]
    known += [f"{_name(part.column)} AS c{n}" for n, part in enumerate(found.state.components)]
    joined = "\n".join(
        f"LEFT JOIN ({rows}) {alias} ON {_same('t', alias, keys)}"
        for alias, rows in (
            ("p", _aggregated(found, _copies(node.input, ">"))),
            ("m", _aggregated(found, _copies(node.input, "<"))),
            ("a", _aggregated(found, f"(\n{render(node.input, _at(AFTER))}\n)")),
            ("o", f"SELECT {', '.join(known)} FROM {{{BEFORE}_view}}{expired}"),
        )
    )
    values = [*(f"t.{key}" for key in keys), *_values(found)]
    new = f"SELECT {', '.join(values)}\nFROM ({touched}) t\n{joined}"
    alive = "" if not keys else f" WHERE {_component(found, found.alive)} > 0"
    rest = (
        f"(SELECT b.* FROM {{{BEFORE}_view}} b LEFT ANTI JOIN ({touched}) t ON "
        + (" AND ".join(f"b.{_name(n)} <=> t.{k}" for n, k in zip(stored, keys, strict=True))
           or "true")
        + ")"
    )  # fmt: skip
    rows = f"(SELECT {', '.join(_shown(found, names))} FROM (\n{new}\n){alive})"
    all_rows = _sum(names, (1, rows), (1, rest), (-1, f"{{{AFTER}_view}}"))
    return f"WITH net AS (\n{_moved(node.input)}\n)\n{all_rows}"


# -- stored groups ------------------------------------------------------------------------------


def _aggregated(found: FoldedGroups, rows: str) -> str:
    """The components of each group of a relation, and its counts of the arguments of extrema."""
    node, calls = found.node, found.state.filled_by
    items = [f"{escape(call.sql('i'))} AS c{n}" for n, call in enumerate(calls)]
    items += [f"count(i.{_name(call.arg)}) AS n{n}" for n, call in enumerate(calls) if call.arg]
    tail = f" GROUP BY {', '.join(f'i.{_name(key)}' for key in node.keys)}" if node.keys else ""
    return f"SELECT {', '.join(filter(None, [_keys(node), *items]))} FROM {rows} i{tail}"


def _values(found: FoldedGroups) -> list[str]:
    """The new value of each component: `o` is the stored group, `p` and `m` the inserted and
    deleted rows, `a` all remembered rows. A group that lost a value has the extrema of `a`."""
    extrema = [n for n, part in enumerate(found.state.components) if part.kind != "add"]
    lost = " OR ".join(f"coalesce(m.n{n}, 0) > 0" for n in extrema)
    made: dict[str, str] = {}
    for n, part in enumerate(found.state.components):
        if part.kind == "add":
            value = f"coalesce(o.c{n}, 0) + coalesce(p.c{n}, 0) - coalesce(m.c{n}, 0)"
        else:
            value = f"IF({lost}, a.c{n}, {part.kind}(o.c{n}, p.c{n}))"
        made[part.column] = f"CAST({value} AS {part.type})"
    counted = {part.column: part.null_when_zero for part in found.state.components}
    return [
        f"IF({made[counted[column]]} = 0, NULL, {value}) AS c{n}" if counted[column]
        else f"{value} AS c{n}"
        for n, (column, value) in enumerate(made.items())
    ]  # fmt: skip


def _shown(found: FoldedGroups, names: tuple[str, ...]) -> list[str]:
    """The columns `names` of groups that have keys `k…` and components `c…`."""
    derived = {each.column: each.sql for each in found.derived}
    stored = list(found.key.columns)
    items = []
    for name in names:
        if name in derived:
            value = fill(derived[name], lambda column: f"({_component(found, column)})")
            value = escape(value)
        else:
            value = f"k{stored.index(name)}" if name in stored else _component(found, name)
        items.append(f"{value} AS {_name(name)}")
    return items


def _component(found: FoldedGroups, column: str) -> str:
    if column in found.key.columns:
        return f"k{found.key.columns.index(column)}"
    return f"c{[part.column for part in found.state.components].index(column)}"


def _keys(node: Aggregate) -> str:
    return ", ".join(f"i.{_name(key)} AS k{n}" for n, key in enumerate(node.keys))


def _copies(node: Node, sign: str) -> str:
    copies = f"explode(sequence(1, CAST(abs({WEIGHT}) AS INT))) AS copy_of_row"
    return f"(SELECT {listed(node.columns)}, {copies} FROM net WHERE {WEIGHT} {sign} 0)"


# -- signed rows --------------------------------------------------------------------------------


def _moved(node: Node) -> str:
    """The inserted and deleted remembered rows of a node, consolidated."""
    sides = ((1, f"(\n{render(node, _at(AFTER))}\n)"), (-1, f"(\n{render(node, _at(BEFORE))}\n)"))
    return _net(node.columns, _sum(node.columns, *sides))


def _net(names: tuple[str, ...], signed: str) -> str:
    shown, grouped = (f"{listed(names)}, ", f"\nGROUP BY {listed(names)}") if names else ("", "")
    return (
        f"SELECT {shown}sum({WEIGHT}) AS {WEIGHT} FROM (\n{signed}\n){grouped}\n"
        f"HAVING sum({WEIGHT}) <> 0"
    )


def _sum(names: tuple[str, ...], *parts: tuple[int, str]) -> str:
    shown = f"{listed(names)}, " if names else ""
    return "\nUNION ALL\n".join(
        f"SELECT {shown}CAST({sign} AS BIGINT) AS {WEIGHT} FROM {rows}" for sign, rows in parts
    )


def _same(one: str, other: str, columns: tuple[str, ...] | list[str]) -> str:
    pairs = [f"{one}.{_name(column)} <=> {other}.{_name(column)}" for column in columns]
    return " AND ".join(pairs) or "true"


def _name(name: str) -> str:
    return escape(quote(name))
