"""Relational nodes as Spark SQL."""

from __future__ import annotations

from collections.abc import Callable

from dbt_streamsql.plan.expression import Expr, Ref, dotted, escape, ident
from dbt_streamsql.plan.relational import Aggregate, Input, Node, Scan, Select, UnionAll

Source = Callable[[str], str]
"""How a base table is written: table name -> SQL text (may hold `{frame}` holes)."""


def render(node: Node, source: Source) -> str:
    """The node as a SELECT; the text is a template whose literal braces are doubled."""
    if isinstance(node, Scan):
        columns = ", ".join(escape(ident(name)) for name in node.columns) or "1"
        return f"SELECT {columns} FROM {source(node.table)}"
    if isinstance(node, UnionAll):
        return "\nUNION ALL\n".join(f"({render(child, source)})" for child in node.inputs)
    if isinstance(node, Aggregate):
        return grouping(
            node, f"(\n{indent(render(node.input, source))}\n) i", [c.sql("i") for c in node.calls]
        )
    return select(node, [relation(child, source) for child in node.inputs])


def relation(child: Input, source: Source) -> str:
    """An input of a FROM clause with its alias."""
    alias = escape(ident(child.alias))
    if isinstance(child.node, Scan):
        return f"{source(child.node.table)} {alias}"
    return f"(\n{indent(render(child.node, source))}\n) {alias}"


def grouping(node: Aggregate, from_: str, calls: list[str], alias: str = "i") -> str:
    """`SELECT keys, calls FROM … GROUP BY keys`."""
    keys = [escape(f"{alias}.{ident(key)}") for key in node.keys]
    items = [f"{sql} AS {escape(ident(key))}" for sql, key in zip(keys, node.keys, strict=True)]
    items += [
        f"{sql} AS {escape(ident(call.name))}" for sql, call in zip(calls, node.calls, strict=True)
    ]
    tail = f"\nGROUP BY {', '.join(keys)}" if keys else ""
    return f"SELECT {', '.join(items)}\nFROM {from_}{tail}"


def select(
    node: Select,
    relations: list[str],
    extra: str = "",
    resolve: Callable[[Ref], str] = dotted,
) -> str:
    """`SELECT outputs[, extra] FROM a JOIN b ON … WHERE …`, predicates as early as they can be."""
    items = [aliased(output.expr.render(resolve), output.name) for output in node.outputs] + (
        [extra] if extra else []
    )
    return f"SELECT {', '.join(items)}\nFROM {joined(node, relations, resolve)}"


def joined(node: Select, relations: list[str], resolve: Callable[[Ref], str] = dotted) -> str:
    """The FROM and WHERE of an inner join in the order of `relations` (one for each input)."""
    rest = list(node.where)
    seen: set[str] = set()
    text = ""
    filters: list[str] = []
    for child, sql in zip(node.inputs, relations, strict=True):
        seen.add(child.alias)
        ready = [expr for expr in rest if expr.aliases <= seen]
        rest = [expr for expr in rest if not expr.aliases <= seen]
        joining = [expr for expr in ready if len(expr.aliases) > 1]
        filters += [term(expr, resolve) for expr in ready if len(expr.aliases) <= 1]
        if not text:
            text = sql
        elif joining:
            text += f"\nJOIN {sql} ON {' AND '.join(term(expr, resolve) for expr in joining)}"
        else:
            text += f"\nCROSS JOIN {sql}"
    return text + (f"\nWHERE {' AND '.join(filters)}" if filters else "")


def term(expr: Expr, resolve: Callable[[Ref], str] = dotted) -> str:
    """A conjunct, in brackets."""
    return f"({expr.render(resolve)})"


def aliased(sql: str, name: str) -> str:
    """`sql AS name`, or `sql` alone where it already has that name."""
    quoted = escape(ident(name))
    return sql if sql.rpartition(".")[2] == quoted and "(" not in sql else f"{sql} AS {quoted}"


def indent(text: str) -> str:
    return "\n".join("  " + line for line in text.splitlines())
