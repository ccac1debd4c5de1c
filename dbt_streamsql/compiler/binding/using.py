"""JOIN … USING and NATURAL JOIN as joins with ON, with Spark's common columns.

The common column of an inner or left join is the left one, of a right join the right one, of a
full join the first of the two that is not NULL; a later join compares with it. It comes first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from sqlglot import exp

from dbt_streamsql.compiler.parsing.unsupported import obstacle

Columns = Callable[[exp.Expr], list[str]]
"""The names of the columns of a relation in a FROM clause, in lower case and in order."""


def without_using(tree: exp.Expr, columns: Columns) -> None:
    """Rewrite all such joins of a tree with ON, sub-queries first; raises `Unsupported`."""
    for select in reversed(list(tree.find_all(exp.Select))):
        joins = select.args.get("joins") or []
        if any(_common(join) for join in joins):
            _rewrite(select, joins, columns)


def _common(join: exp.Join) -> bool:
    return bool(join.args.get("using")) or (join.method or "").upper() == "NATURAL"


@dataclass
class _Joined:
    """The relations joined so far: each column with its output name and its expression."""

    shown: list[tuple[str, exp.Expr]] = field(default_factory=list)
    merged: dict[str, exp.Expr] = field(default_factory=dict)

    def add(self, relation: exp.Expr, names: list[str]) -> None:
        self.shown += [(name, _column(name, relation)) for name in names]

    def find(self, name: str, join: exp.Join) -> exp.Expr:
        found = [expr for shown, expr in self.shown if shown == name]
        if len(found) != 1:
            raise obstacle(join, "JOIN USING", f"{name} is not one column of the left side")
        return found[0]

    def merge(self, join: exp.Join, names: list[str], right: list[str]) -> exp.Expr:
        """Join by common columns; returns the condition."""
        side = (join.side or "").upper()
        only_left = (join.kind or "").upper() in {"SEMI", "ANTI"}
        conditions: list[exp.Expr] = []
        common: dict[str, exp.Expr] = {}
        for name in names:
            mine, theirs = self.find(name, join), _column(name, join.this)
            conditions.append(exp.EQ(this=mine.copy(), expression=theirs))
            common[name] = mine
            if side == "RIGHT":
                common[name] = theirs.copy()
            elif side == "FULL":
                parts = mine.copy(), theirs.copy()
                common[name] = exp.Coalesce(this=parts[0], expressions=[parts[1]])
        rest = [] if only_left else [(n, _column(n, join.this)) for n in right if n not in names]
        left = [(name, expr) for name, expr in self.shown if name not in common]
        self.shown = [*common.items(), *left, *rest]
        self.merged.update(common)
        return exp.and_(*conditions, copy=False)


def _rewrite(select: exp.Select, joins: list[exp.Join], columns: Columns) -> None:
    first = select.args["from_"].this
    if select.args.get("laterals"):
        raise obstacle(
            joins[0], "JOIN USING", "it is used together with LATERAL VIEW", "write it with ON"
        )
    for number, relation in enumerate([first, *(join.this for join in joins)]):
        if not relation.alias_or_name:
            relation.set("alias", exp.TableAlias(this=exp.to_identifier(f"__joined{number}")))
    joined = _Joined()
    joined.add(first, columns(first))
    for join in joins:
        right = columns(join.this)
        if not _common(join):
            joined.add(join.this, right)
            continue
        names = [name.name.lower() for name in join.args.get("using") or []]
        if not names:
            shown = {name for name, _ in joined.shown}
            names = [name for name in right if name in shown]
            order = [name for name, _ in joined.shown]
            names.sort(key=order.index)
        join.set("using", None)
        join.set("method", None)
        if names:
            join.set("on", joined.merge(join, names, right))
        else:
            joined.add(join.this, right)
    _show(select, joined)


def _show(select: exp.Select, joined: _Joined) -> None:
    """Replace the common columns where a block names them, also through a star."""
    items: list[exp.Expr] = []
    for item in select.expressions:
        if not isinstance(item, exp.Star):
            items.append(item)
            continue
        if item.args.get("replace") or item.args.get("rename"):
            raise obstacle(item, "JOIN USING", "it is used with a star that replaces columns")
        left_out = {part.name.lower() for part in item.args.get("except_") or []}
        items += [
            exp.alias_(expr.copy(), exp.to_identifier(name, quoted=True))
            for name, expr in joined.shown
            if name not in left_out
        ]
    select.set("expressions", items)
    parts = [*select.expressions]
    parts += [select.args[key] for key in _CLAUSES if isinstance(select.args.get(key), exp.Expr)]
    for part in parts:
        for column in [found for found in part.find_all(exp.Column) if not found.table]:
            meant = joined.merged.get(column.name.lower())
            if meant is None or column.find_ancestor(exp.Query) is not select:
                continue
            new: exp.Expr = meant.copy()
            holder = column.parent
            named = isinstance(holder, exp.Anonymous) and holder.name.lower() == "struct"
            if holder is select or named:
                new = exp.alias_(new, exp.to_identifier(column.name, quoted=True))
            column.replace(new)


_CLAUSES = ("where", "group", "having", "order", "qualify")


def _column(name: str, relation: exp.Expr) -> exp.Column:
    owner = exp.to_identifier(relation.alias_or_name, quoted=True)
    return exp.column(exp.to_identifier(name, quoted=True), table=owner)
