"""Turns a qualified syntax tree into relational nodes, or into the reason why it cannot."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from sqlglot import exp

from dbt_streamsql.compiler.binding.aggregate_calls import (
    Calls,
    Found,
    find_calls,
    told_apart,
)
from dbt_streamsql.compiler.binding.bind import Bound
from dbt_streamsql.compiler.binding.constants import rows_of
from dbt_streamsql.compiler.binding.scalar import called, conjuncts, direction, filters
from dbt_streamsql.compiler.lowering import (
    from_clause,
    group_by,
    lateral,
    subqueries,
    windows,
)
from dbt_streamsql.compiler.lowering.correlated import rows_said
from dbt_streamsql.compiler.lowering.outer_references import in_brackets
from dbt_streamsql.compiler.lowering.schemas import Schemas
from dbt_streamsql.compiler.lowering.select_block import Block
from dbt_streamsql.compiler.parsing.builtin_functions import GENERATORS
from dbt_streamsql.compiler.parsing.unsupported import Reason, Unsupported, obstacle
from dbt_streamsql.plan.algebra.catalog import Catalog
from dbt_streamsql.plan.algebra.expression import Expr
from dbt_streamsql.plan.algebra.likeness import has_likeness
from dbt_streamsql.plan.algebra.relational import (
    CLOCK,
    Aggregate,
    Call,
    Constant,
    Generate,
    Input,
    Limit,
    Node,
    Output,
    Scan,
    Select,
    Session,
    UnionAll,
)
from dbt_streamsql.plan.algebra.schema import WEIGHT, Column

_NEVER_TOO_LONG = 28
"""Digits of a decimal whose sum has ten more digits, which no number of rows overflows."""


@dataclass(frozen=True)
class Built:
    """The relational tree, and whether it is one of several correct results of the text."""

    root: Node
    chosen: bool


def build(bound: Bound, catalog: Catalog) -> Built:
    """The relational tree of a bound query; raises `Unsupported`."""
    builder = Builder(bound, catalog)
    root = builder.whole()
    return Built(root, builder.chosen)


@dataclass
class Builder:
    """State and helpers shared by the modules that build the parts of a block."""

    bound: Bound
    catalog: Catalog
    ctes: dict[str, Node] = field(default_factory=dict)
    chosen: bool = False

    def __post_init__(self) -> None:
        self.schemas = Schemas(self.catalog, self.bound.tables)

    # -- helpers of the parts ------------------------------------------------------------------

    def block(self, outer: Block | None) -> Block:
        return Block(self.catalog.functions(), outer)

    def schema(self, node: Node) -> tuple[Column, ...]:
        """The columns of a node with the types that Spark gives them."""
        return self.schemas.of(node)

    def ties(self, below: Node) -> tuple[tuple[str, ...], tuple[tuple[str, str], ...]]:
        """The tie-breaker columns: those that Spark can sort, and those that need stand-ins
        for that, with their types."""
        columns = self.schema(below)
        unlike = (c for c in columns if not c.is_comparable and has_likeness(c))
        sortable = (column.name for column in columns if column.is_sortable)
        return tuple(sortable), tuple((column.name, column.type) for column in unlike)

    def constant(self, tree: exp.Expr) -> Constant:
        """A query of VALUES, which are the same at every epoch."""
        return rows_of(tree, "VALUES", tree, self.catalog).node

    def generated(self, below: Node, call: Expr) -> list[str]:
        """The names that Spark gives to the columns of a generator."""
        made = Generate(below, call, (), outer=False)
        return [column.name.lower() for column in self.schema(made)]

    def typed(
        self,
        below: Node,
        keys: tuple[str, ...],
        calls: Iterable[Call],
        session: Session | None = None,
    ) -> Aggregate:
        """A grouping whose calls have the types of their arguments and results."""
        given = {column.name: column for column in self.schema(below)}
        rows = Column("", "bigint", nullable=False)
        known = []
        for call in (told_apart(call, given) for call in calls):
            column = given[call.arg] if call.arg is not None else rows
            known.append(replace(call, arg_type=column.type, arg_nullable=column.nullable))
        node = Aggregate(below, keys, tuple(known), session)
        result = {column.name: column.type for column in self.schema(node)}
        typed = (replace(call, type=result[call.name]) for call in known)
        return replace(node, calls=tuple(map(self._whole_if_lossy, typed)))

    def _whole_if_lossy(self, call: Call) -> Call:
        """A sum that may overflow to NULL cannot be updated without one of its rows."""
        digits = Column("", call.arg_type).decimal
        if call.function not in {"SUM", "AVG"} or call.arg is None or digits is None:
            return call
        if digits[0] <= _NEVER_TOO_LONG or not self.catalog.loses_overflow():
            return call
        text = f"{call.function}({'DISTINCT ' if call.distinct else ''}{{0}})"
        return replace(call, function="", arg=None, template=text, args=(call.arg,))

    def conditional(self, block: Block, term: exp.Expr) -> Expr:
        """A condition; it may compare with the time of the barrier."""
        for part in list(term.find_all(exp.CurrentTimestamp, exp.CurrentDate, exp.Anonymous)):
            column = _clock(part)
            if column is None or part in block.swaps:
                continue
            block.swaps[part] = (block.add("__clock", Scan(CLOCK, ("now", "today"))), column)
        return block.expr(term)

    def grouped_calls(
        self, block: Block, keys: list[exp.Expr], names: tuple[str, ...], calls: Calls
    ) -> Block:
        """The groups of a correlated value, their keys under the given names."""
        once = list(dict.fromkeys(keys))
        made = group_by.calls_over(self, block, once, calls)
        found = made.inputs[0].node
        assert isinstance(found, Aggregate)
        outputs = [
            *(
                Output(name, Expr.column("g", found.keys[once.index(key)]))
                for name, key in zip(names, keys, strict=True)
            ),
            *(Output(call.name, Expr.column("g", call.name)) for call in found.calls),
        ]
        made.inputs = [Input("g", Select((Input("g", found),), (), tuple(outputs)))]
        made.swaps = {part: ref for part, ref in made.swaps.items() if ref[1] not in found.keys}
        return made

    def whole(self) -> Node:
        """The whole query, if the tree written as text surely means what the text says."""
        root = self.query(self.bound.tree)
        if self.bound.doubt:
            raise Unsupported(Reason("query", self.bound.doubt))
        return root

    # -- queries -------------------------------------------------------------------------------

    def query(self, tree: exp.Expr) -> Node:
        """Any standalone query."""
        tree = in_brackets(tree)
        outer = dict(self.ctes)
        try:
            self._with(tree)
            for key, operator in (
                ("pivots", "PIVOT"),
                ("match", "MATCH_RECOGNIZE"),
                ("sample", "TABLESAMPLE"),
                ("into", "INTO"),
            ):
                clause = tree.args.get(key)
                if clause:
                    node = clause[0] if isinstance(clause, list) else clause
                    raise obstacle(node, operator, "not maintained from changes")
            if isinstance(tree, exp.SetOperation):
                return self._ordered(tree, self._set_operation(tree))
            if isinstance(tree, exp.Select):
                return self._select(tree)
            if isinstance(tree, exp.Values):
                return self.constant(tree)
            raise obstacle(
                tree, tree.key.upper(), "only SELECT, VALUES and set operations are supported"
            )
        finally:
            self.ctes = outer

    # -- what the parts ask of each other ------------------------------------------------------

    def conditions(self, block: Block, terms: list[exp.Expr]) -> None:
        """`subqueries.conditions`."""
        subqueries.conditions(self, block, terms)

    def values(self, block: Block, items: list[exp.Expr]) -> None:
        """`subqueries.values`."""
        subqueries.values(self, block, items)

    def in_on(self, left: Block, right: Block, on: list[exp.Expr]) -> list[exp.Expr]:
        """`subqueries.in_on`."""
        return subqueries.in_on(self, left, right, on)

    def lateral_join(self, block: Block, join: exp.Join, how: str) -> None:
        """`lateral.lateral_join`."""
        lateral.lateral_join(self, block, join, how)

    def _with(self, tree: exp.Expr) -> None:
        with_ = tree.args.get("with_")
        if with_ is None:
            return
        for cte in with_.expressions:
            columns = [column.name for column in cte.args["alias"].args.get("columns") or []]
            self.ctes[cte.alias] = from_clause.renamed(self.query(cte.this), columns)

    # -- set operations ------------------------------------------------------------------------

    def _set_operation(self, tree: exp.SetOperation) -> Node:
        if tree.args.get("by_name") or tree.args.get("on"):
            raise obstacle(tree, "BY NAME", "not maintained from changes yet", "name the columns")
        first, *others = map(self.query, _branches(tree))
        if any(len(side.columns) != len(first.columns) for side in others):
            raise obstacle(tree, tree.key.upper(), "the sides have different numbers of columns")
        if isinstance(tree, exp.Union):
            both = self._united([first, *others])
            return Aggregate(both, both.columns, ()) if tree.args.get("distinct") else both
        return self._counted(tree, first, others[0])

    def _united(self, sides: list[Node]) -> UnionAll:
        """All rows of the sides. Types are unified from the left, pair by pair, as in Spark."""
        self.schemas.know(sides)
        first, *others = sides
        if len({tuple(column.type for column in self.schema(side)) for side in sides}) == 1:
            return UnionAll(tuple(part for side in sides for part in _union_parts(side)))
        both = self._same_types((*_union_parts(first), *_union_parts(others[0])))
        for side in others[1:]:
            both = self._same_types((*both.inputs, *_union_parts(side)))
        return both

    def _same_types(self, parts: tuple[Node, ...]) -> UnionAll:
        """Cast each side to the common type: its change is computed without the other side."""
        union = UnionAll(parts)
        wanted = self.schema(union)
        sides: list[Node] = []
        for node in union.inputs:
            have = self.schema(node)
            if [column.type for column in have] == [column.type for column in wanted]:
                sides.append(node)
                continue
            outputs = tuple(
                Output(
                    name,
                    Expr.column("s", name)
                    if old.type == new.type
                    else Expr(f"CAST({{0}} AS {new.type})", (("s", name),)),
                )
                for name, old, new in zip(node.columns, have, wanted, strict=True)
            )
            sides.append(Select((Input("s", node),), (), outputs))
        return UnionAll(tuple(sides))

    def _counted(self, tree: exp.SetOperation, left: Node, right: Node) -> Node:
        """INTERSECT and EXCEPT: the counts of a row on both sides decide its count."""
        names = tuple(f"c{index}" for index in range(len(left.columns)))
        tagged = []
        for number, side in enumerate((left, right)):
            outputs = [
                Output(name, Expr.column("s", old))
                for name, old in zip(names, side.columns, strict=True)
            ]
            for index, tag in enumerate(("in_left", "in_right")):
                value = "1" if number == index else "CAST(NULL AS INT)"
                outputs.append(Output(tag, Expr(value)))
            tagged.append(Select((Input("s", side),), (), tuple(outputs)))
        both = self._same_types(tuple(tagged))
        calls = [Call(n, "COUNT", f"in_{n}", False, "", True, "") for n in ("left", "right")]
        node: Node = self.typed(both, names, calls)
        counts = (("g", "left"), ("g", "right"))
        keep = isinstance(tree, exp.Intersect)
        shown = [Output(name, Expr.column("g", name)) for name in names]
        if tree.args.get("distinct") is not False:
            where = "{0} > 0 AND {1} > 0" if keep else "{0} > 0 AND {1} = 0"
            node = Select((Input("g", node),), (Expr(where, counts),), tuple(shown))
        else:
            copies = "least({0}, {1})" if keep else "{0} - {1}"
            kept = Output("copies", Expr(copies, counts))
            some = Expr(f"{copies} > 0", counts)
            counted = Select((Input("g", node),), (some,), (*shown, kept))
            call = Expr("explode(sequence(1, CAST({0} AS INT)))", (("i", "copies"),))
            node = Generate(counted, call, ("copy",), False)
            shown = [Output(name, Expr.column("i", name)) for name in names]
            node = Select((Input("i", node),), (), tuple(shown))
        return from_clause.renamed(node, list(left.columns))

    # -- SELECT --------------------------------------------------------------------------------

    def _select(self, tree: exp.Select) -> Node:
        distinct = tree.args.get("distinct")
        if distinct is not None and distinct.args.get("on"):
            raise obstacle(distinct, "DISTINCT ON", "not maintained from changes")
        block = from_clause.read(self, tree, None)
        where = tree.args.get("where")
        subqueries.conditions(self, block, filters(where.this if where else None))
        group, having = tree.args.get("group"), tree.args.get("having")
        order = tree.args["order"].expressions if _limited(tree) and tree.args.get("order") else []
        qualify = conjuncts(tree.args["qualify"].this if tree.args.get("qualify") else None)
        items = [*tree.expressions, *([having.this] if having else []), *qualify, *order]
        calls = find_calls(items)
        if having is not None and group is None and not calls:
            # All rows are one group, which exists even without rows.
            calls = {exp.Count(this=exp.Star()): Found("COUNT", ())}
        if group is not None or calls:
            self.chosen |= any(found.chosen for found in calls.values())
            for found in calls.values():
                subqueries.values(self, block, list(found.args))
            block = group_by.grouped(self, block, tree, calls)
        if having is not None:
            subqueries.conditions(self, block, conjuncts(_truth(having.this)))
        shown = list(tree.expressions)
        subqueries.values(self, block, [*shown, *order])
        self.chosen |= windows.windows(self, block, tree, [*shown, *order, *qualify])
        block.where += [block.expr(term) for term in qualify]
        outputs = self._items(block, shown)
        if distinct is not None:
            node = block.project(outputs)
            return self._ordered(tree, Aggregate(node, node.columns, ()))
        if not _limited(tree):
            return block.project(outputs)
        names = tuple(output.name for output in outputs)
        keys, hidden = _order(tree, names, block)
        return self._first(tree, block.project([*outputs, *hidden]), keys, names)

    def _items(self, block: Block, items: list[exp.Expr]) -> list[Output]:
        outputs: list[Output] = []
        _time_windows(block, items)
        for item in items:
            bare = item.unalias()
            generator = _generator(bare)
            if generator is None:
                outputs.append(Output(item.alias_or_name, block.expr(bare)))
                continue
            names = (
                [a.name for a in item.aliases]
                if isinstance(item, exp.Aliases)
                else ([item.alias] if isinstance(item, exp.Alias) else [])
            )
            old = {output.name: output for output in outputs}
            block.close([Output(f"__shown_{name}", output.expr) for name, output in old.items()])
            call = bare.this if isinstance(bare, exp.Aliases) else bare
            made = from_clause.generate(
                self, block, call, names if not _unnamed(names) else [], False
            )
            outputs = [Output(name, Expr.column("b", f"__shown_{name}")) for name in old]
            shown = names if len(names) == len(made) else made
            outputs += [
                Output(name, Expr.column("b", inside))
                for name, inside in zip(shown, made, strict=True)
            ]
        return _named(outputs)

    def _ordered(self, tree: exp.Expr, node: Node) -> Node:
        """ORDER BY with LIMIT and OFFSET over rows of which only the output columns are known.

        An order without them has no effect in a table.
        """
        if not _limited(tree):
            return node
        return self._first(tree, node, _order(tree, node.columns, None)[0], node.columns)

    def _first(
        self, tree: exp.Expr, below: Node, order: list[Expr], shown: tuple[str, ...]
    ) -> Node:
        """LIMIT and OFFSET of `tree` over `below`, cut to the columns `shown`."""
        limit, offset = rows_said(tree, "limit"), rows_said(tree, "offset") or 0
        self.chosen = True
        first = Limit(below, tuple(order), limit, offset, *self.ties(below))
        return Select(
            (Input("i", first),), (), tuple(Output(name, Expr.column("i", name)) for name in shown)
        )


def _order(
    tree: exp.Expr, shown: tuple[str, ...], block: Block | None
) -> tuple[list[Expr], list[Output]]:
    """The keys of ORDER BY, and the columns that they need in addition to the output columns."""
    keys: list[Expr] = []
    hidden: list[Output] = []
    for item in tree.args["order"].expressions if tree.args.get("order") else []:
        bare = item.this if isinstance(item, exp.Ordered) else item
        if isinstance(bare, exp.Column) and not bare.table and bare.name in shown:
            name = bare.name
        elif block is not None:
            name = f"__order{len(hidden)}"
            hidden.append(Output(name, block.expr(bare)))
        else:
            raise obstacle(item, "ORDER BY", "it must use columns of the SELECT list")
        keys.append(Expr(f"{{0}} {direction(item)}".strip(), (("i", name),)))
    return keys, hidden


def _truth(condition: exp.Expr) -> exp.Expr:
    """The condition of a HAVING: Spark casts what is not a predicate, such as a bare sum."""
    bare = condition.unnest()
    if isinstance(bare, exp.Predicate | exp.Connector | exp.Not):
        return condition
    return exp.cast(condition.copy(), exp.DType.BOOLEAN)


def _limited(tree: exp.Expr) -> bool:
    return bool(tree.args.get("limit") or tree.args.get("offset"))


def _generator(node: exp.Expr) -> exp.Expr | None:
    call = node.this if isinstance(node, exp.Aliases) else node
    return call if called(call) in GENERATORS else None


def _time_windows(block: Block, items: list[exp.Expr]) -> None:
    """`window(…)` in a SELECT without GROUP BY: it makes rows, so its columns come after it."""
    found = dict.fromkeys(
        call
        for item in items
        for call in item.find_all(exp.Anonymous)
        if called(call) == "window" and not {call, call.parent} & block.swaps.keys()
    )
    for number, call in enumerate(found):
        name = f"__time{number}"
        block.close([Output(name, block.expr_of_generator(call))])
        block.swap(call, name)


def _unnamed(names: list[str]) -> bool:
    """Names that the qualifier made up where the text has none."""
    return any(name.startswith("_col_") for name in names)


def _clock(node: exp.Expr) -> str | None:
    if isinstance(node, exp.CurrentTimestamp):
        return "now"
    if isinstance(node, exp.CurrentDate):
        return "today" if node.this is None else None
    name = node.name.lower() if isinstance(node, exp.Anonymous) and not node.expressions else ""
    return {
        "now": "now",
        "current_timestamp": "now",
        "curdate": "today",
        "current_date": "today",
    }.get(name)


def _branches(tree: exp.SetOperation) -> list[exp.Expr]:
    """The sides of a set operation; for a chain of UNION ALL, which is left-associative, all."""
    sides, left = [tree.right], tree.left
    if isinstance(tree, exp.Union) and not tree.args.get("distinct"):
        while isinstance(left, exp.Union) and not any(
            value for key, value in left.args.items() if key not in ("this", "expression")
        ):
            sides.append(left.right)
            left = left.left
    return [left, *reversed(sides)]


def _union_parts(node: Node) -> tuple[Node, ...]:
    return node.inputs if isinstance(node, UnionAll) else (node,)


def _named(outputs: list[Output]) -> list[Output]:
    names = [output.name for output in outputs]
    if not all(names):
        raise Unsupported(
            Reason("column names", f"not every column has a name: {', '.join(names)}")
        )
    if WEIGHT in names:
        raise Unsupported(Reason("column names", f"{WEIGHT} is reserved", "use another alias"))
    # A name that two columns share names neither of them: no query can select it.
    return [
        replace(output, name=f"__same{index}") if names.count(output.name) > 1 else output
        for index, output in enumerate(outputs)
    ]
