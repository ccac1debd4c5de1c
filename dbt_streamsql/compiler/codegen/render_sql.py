"""Relational nodes as Spark SQL."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

from dbt_streamsql.compiler.codegen.wide_sql import branches_sql, side_sql
from dbt_streamsql.plan.algebra.expression import (
    Expr,
    Ref,
    dotted,
    escape,
    fill,
)
from dbt_streamsql.plan.algebra.likeness import stand_in
from dbt_streamsql.plan.algebra.relational import (
    CLOCK,
    Aggregate,
    Branches,
    Chosen,
    Constant,
    Generate,
    Input,
    Keyed,
    Limit,
    Match,
    Node,
    Over,
    Scan,
    Select,
    UnionAll,
    Window,
)
from dbt_streamsql.quoting import TableName, quote

_NAME = re.compile(r"\w+|`[^`]*`")

Source = Callable[[Scan], str]
"""Renders the rows that a scan reads: SQL text that may hold `{frame}` holes."""

JOINS = {
    "left": "LEFT JOIN",
    "full": "FULL JOIN",
    "semi": "LEFT SEMI JOIN",
    "anti": "LEFT ANTI JOIN",
}


def render(node: Node, source: Source) -> str:
    """The node as a SELECT; the text is a template whose literal braces are doubled."""
    if isinstance(node, Chosen):
        return chosen(node, source)
    if isinstance(node, Scan):
        return f"SELECT {listed(node.columns) or '1'} FROM {source(node)}"
    if isinstance(node, Constant):
        return node.sql
    if isinstance(node, Branches):
        rows = enumerate(render(child.node, source) for child in node.inputs)
        return branches_sql(node, [side_sql(node, at, sql) for at, sql in rows], hidden=True)
    if isinstance(node, UnionAll):
        return "\nUNION ALL\n".join(f"({render(child, source)})" for child in node.inputs)
    if isinstance(node, Select):
        return select(node, [relation(child, source) for child in node.inputs])
    if isinstance(node, Match):
        items = [aliased(output.expr.render(), output.name) for output in node.outputs]
        on = " AND ".join(term(expr) for expr in node.on)
        return (
            f"SELECT {', '.join(items)}\nFROM {relation(node.left, source)}\n"
            f"{JOINS[node.kind]} {relation(node.right, source)} ON {on}"
        )
    inner = f"(\n{indent(render(node.input, source))}\n) i"
    if isinstance(node, Generate):
        return generate(node, inner)
    return keyed(node, inner)


def plain(node: Node) -> str:
    """The node as SQL over the tables in their current state."""

    def now(scan: Scan) -> str:
        if scan.table == CLOCK:
            return "(SELECT current_timestamp() AS now, current_date() AS today)"
        return TableName.parse(scan.table).sql

    return fill(render(node, now), lambda hole: hole)


def relation(child: Input, source: Source) -> str:
    """An input of a FROM clause with its alias."""
    alias = escape(quote(child.alias))
    if isinstance(child.node, Scan) and not isinstance(child.node, Chosen):
        return f"{source(child.node)} {alias}"
    return f"(\n{indent(render(child.node, source))}\n) {alias}"


def chosen(node: Chosen, source: Source) -> str:
    """The rows of a table that a small frame selects: the frame is broadcast to the rows."""
    on = " AND ".join(
        f"r.{escape(quote(own))} {operator} k.{escape(quote(key))}"
        for own, operator, key in node.pairs
    )
    return (
        f"SELECT /*+ BROADCAST(k) */ {listed(node.columns, 'r')} FROM {source(node)} r\n"
        f"LEFT SEMI JOIN {{{node.frame}}} k ON {on}"
    )


def keyed(node: Keyed, from_: str) -> str:
    """A grouping, a window or a limit over a relation with the alias `i`."""
    if isinstance(node, Aggregate):
        return grouping(node, from_, [call.sql("i") for call in node.calls])
    columns = listed(node.input.columns, "i")
    if isinstance(node, Window):
        items = [f"{_over(node, over)} AS {escape(quote(over.name))}" for over in node.overs]
        return f"SELECT {columns}, {', '.join(items)}\nFROM {from_}"
    text = f"SELECT {columns}\nFROM {from_}"
    text += f"\nORDER BY {order_of(node)}" if order_of(node) else ""
    text += f"\nLIMIT {node.limit}" if node.limit is not None else ""
    return text + (f" OFFSET {node.offset}" if node.offset else "")


def order_of(node: Limit) -> str:
    """The ORDER BY of the rows under the alias `i`, including tie-breakers ('' = nothing)."""
    return ", ".join([*(expr.render() for expr in node.order), *_ties(node)])


def _ties(node: Limit | Window) -> list[str]:
    """The tie-breakers for rows that an order leaves equal."""
    likes = (escape(stand_in(type_, f"i.{quote(name)}")) for name, type_ in node.unlike)
    return [*(f"i.{escape(quote(column))}" for column in node.sortable), *likes]


def _over(node: Window, over: Over) -> str:
    parts = [f"PARTITION BY {listed(node.partition, 'i')}"] if node.partition else []
    order = [expr.render() for expr in over.order]
    if over.ties:
        order += _ties(node)
    if order:
        parts.append(f"ORDER BY {', '.join(order)}")
    if over.frame:
        parts.append(over.frame)
    return f"{over.call.render()} OVER ({' '.join(parts)})"


def generate(node: Generate, from_: str, extra: str = "") -> str:
    """`SELECT columns, new columns FROM … LATERAL VIEW generator` over the alias `i`.

    Without names: only the new columns, under the names that Spark gives them.
    """
    if not node.names:
        return f"SELECT v.*\nFROM {from_}\nLATERAL VIEW {node.call.render()} v"
    names = listed(node.names)
    items = [listed(node.input.columns, "i"), *(f"v.{escape(quote(n))}" for n in node.names)]
    outer = "OUTER " if node.outer else ""
    return (
        f"SELECT {', '.join([*items, extra] if extra else items)}\n"
        f"FROM {from_}\nLATERAL VIEW {outer}{node.call.render()} v AS {names}"
    )


def grouping(node: Aggregate, from_: str, calls: list[str], alias: str = "i") -> str:
    """`SELECT keys, calls FROM … GROUP BY keys`."""
    keys = [escape(f"{alias}.{quote(key)}") for key in node.keys]
    items = [f"{sql} AS {escape(quote(key))}" for sql, key in zip(keys, node.keys, strict=True)]
    if node.session is not None:
        time = escape(f"{alias}.{quote(node.session.time)}")
        keys.append(f"session_window({time}, {escape(node.session.gap)})")
        items.append(f"session_window AS {escape(quote(node.session.name))}")
    items += [
        f"{sql} AS {escape(quote(call.name))}" for sql, call in zip(calls, node.calls, strict=True)
    ]
    tail = f"\nGROUP BY {', '.join(keys)}" if keys else ""
    return f"SELECT {', '.join(items)}\nFROM {from_}{tail}"


def select(
    node: Select,
    relations: list[str],
    extra: str = "",
    resolve: Callable[[Ref], str] = dotted,
) -> str:
    """`SELECT outputs[, extra] FROM a JOIN b ON … WHERE …`, predicates as early as possible."""
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
    """A conjunct, in parentheses."""
    return f"({expr.render(resolve)})"


@lru_cache(maxsize=8192)
def aliased(sql: str, name: str) -> str:
    """`sql AS name`, or `sql` alone where it already has that name."""
    quoted = escape(quote(name))
    owner, _, column = sql.rpartition(".")
    bare = column == quoted and _NAME.fullmatch(owner or "none")
    return sql if bare else f"{sql} AS {quoted}"


def listed(columns: tuple[str, ...] | list[str], alias: str = "") -> str:
    """A column list, qualified by the alias if one is given."""
    dot = f"{alias}." if alias else ""
    return ", ".join(f"{dot}{escape(quote(column))}" for column in columns)


def indent(text: str) -> str:
    return "\n".join("  " + line for line in text.splitlines())
