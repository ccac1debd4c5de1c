"""A qualified syntax tree becomes relational nodes, or the reason why it cannot."""

from __future__ import annotations

from dataclasses import dataclass, field

from sqlglot import exp

from dbt_streamsql.compiler.aggregates import find_calls
from dbt_streamsql.compiler.bind import Bound
from dbt_streamsql.compiler.reasons import Reason, Unsupported, obstacle
from dbt_streamsql.compiler.render import render
from dbt_streamsql.compiler.scalar import check_scalar, conjuncts, to_expr
from dbt_streamsql.plan.catalog import Catalog
from dbt_streamsql.plan.expression import Expr, fill
from dbt_streamsql.plan.relational import (
    Aggregate,
    Call,
    Input,
    Node,
    Output,
    Scan,
    Select,
    UnionAll,
)
from dbt_streamsql.plan.schema import Column
from dbt_streamsql.quoting import TableName

_GROUPED = "g"
"""Alias of the grouped relation under the projection of an aggregate block."""


def build(bound: Bound, catalog: Catalog) -> Node:
    """The relational tree of a bound query; raises `Unsupported`."""
    return _Builder(bound, catalog).query(bound.tree)


@dataclass
class _Builder:
    bound: Bound
    catalog: Catalog
    ctes: dict[str, Node] = field(default_factory=dict)

    def query(self, tree: exp.Expr) -> Node:
        tree = tree.unnest() if isinstance(tree, exp.Subquery) else tree
        outer = dict(self.ctes)
        try:
            self._with(tree)
            self._refuse_modifiers(tree)
            if isinstance(tree, exp.SetOperation):
                return self._set_operation(tree)
            if isinstance(tree, exp.Select):
                return self._select(tree)
            raise obstacle(tree, tree.key.upper(), "only SELECT and UNION are maintained yet")
        finally:
            self.ctes = outer

    def _with(self, tree: exp.Expr) -> None:
        with_ = tree.args.get("with_") or tree.args.get("with")
        if with_ is None:
            return
        if with_.args.get("recursive"):
            raise obstacle(with_, "WITH RECURSIVE", "recursion is refreshed in full")
        for cte in with_.expressions:
            columns = [column.name for column in cte.args["alias"].args.get("columns") or []]
            self.ctes[cte.alias] = _renamed(self.query(cte.this), columns)

    def _refuse_modifiers(self, tree: exp.Expr) -> None:
        for key, operator in (
            ("limit", "LIMIT"),
            ("offset", "OFFSET"),
            ("qualify", "QUALIFY"),
            ("laterals", "LATERAL VIEW"),
            ("pivots", "PIVOT"),
            ("match", "MATCH_RECOGNIZE"),
            ("windows", "WINDOW"),
            ("sample", "TABLESAMPLE"),
        ):
            clause = tree.args.get(key)
            if clause:
                node = clause[0] if isinstance(clause, list) else clause
                raise obstacle(node, operator, "not maintained from changes yet")

    def _set_operation(self, tree: exp.SetOperation) -> Node:
        if not isinstance(tree, exp.Union):
            raise obstacle(tree, tree.key.upper(), "not maintained from changes yet")
        if tree.args.get("by_name") or tree.args.get("on"):
            raise obstacle(tree, "UNION BY NAME", "not maintained from changes yet")
        left, right = self.query(tree.left), self.query(tree.right)
        if len(left.columns) != len(right.columns):
            raise obstacle(tree, "UNION", "the sides have different numbers of columns")
        parts = UnionAll((*_union_parts(left), *_union_parts(right)))
        both = UnionAll(tuple(self._same_types(parts)))
        return Aggregate(both, both.columns, ()) if tree.args.get("distinct") else both

    def _same_types(self, union: UnionAll) -> list[Node]:
        """Cast each side to the common type: its change is computed without the other."""
        wanted = self.catalog.schema(self._plain(union))
        sides: list[Node] = []
        for node in union.inputs:
            have = self.catalog.schema(self._plain(node))
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
        return sides

    def _select(self, tree: exp.Select) -> Node:
        inputs, predicates = self._sources(tree)
        where = tree.args.get("where")
        predicates += conjuncts(where.this if where else None)
        for predicate in predicates:
            check_scalar(predicate, self.catalog.functions())
        distinct = tree.args.get("distinct")
        if distinct is not None and distinct.args.get("on"):
            raise obstacle(distinct, "DISTINCT ON", "not maintained from changes yet")
        group = tree.args.get("group")
        having = tree.args.get("having")
        calls = find_calls([*tree.expressions, *([having] if having else [])])
        conditions = tuple(to_expr(predicate) for predicate in predicates)
        node: Node
        if group is None and not calls:
            if having is not None:
                raise obstacle(having, "HAVING", "there is no GROUP BY and no aggregate")
            outputs = []
            for item in tree.expressions:
                check_scalar(item, self.catalog.functions())
                outputs.append(Output(item.alias_or_name, to_expr(item.unalias())))
            node = Select(inputs, conditions, _named(outputs))
        else:
            node = self._grouped(tree, inputs, conditions, group, having, calls)
        return Aggregate(node, node.columns, ()) if distinct is not None else node

    def _sources(self, tree: exp.Select) -> tuple[tuple[Input, ...], list[exp.Expr]]:
        from_ = tree.args.get("from_") or tree.args.get("from")
        if from_ is None:
            raise obstacle(tree, "SELECT", "it reads no table, so it never changes")
        inputs = [self._source(from_.this)]
        predicates: list[exp.Expr] = []
        pending = [*(from_.this.args.get("joins") or []), *(tree.args.get("joins") or [])]
        for join in pending:
            side, kind = (join.side or "").upper(), (join.kind or "").upper()
            method = (join.args.get("method") or "").upper()
            if side or kind in {"SEMI", "ANTI", "OUTER"} or method:
                operator = " ".join(word for word in (method, side, kind, "JOIN") if word)
                raise obstacle(
                    join,
                    operator,
                    "only inner and cross joins are maintained from changes yet",
                    "use an inner join where every row has a partner",
                )
            if join.args.get("using"):
                raise obstacle(join, "JOIN USING", "write the condition with ON")
            inputs.append(self._source(join.this))
            if join.this.args.get("joins"):
                raise obstacle(join, "nested JOIN", "write the joins one after another")
            predicates += conjuncts(join.args.get("on"))
        return tuple(inputs), predicates

    def _source(self, source: exp.Expr) -> Input:
        self._refuse_modifiers_of_source(source)
        if isinstance(source, exp.Subquery):
            columns = [c.name for c in source.args["alias"].args.get("columns") or []]
            return Input(source.alias, _renamed(self.query(source.this), columns))
        if not isinstance(source, exp.Table):
            raise obstacle(source, source.key.upper(), "only tables and sub-queries are read yet")
        if not isinstance(source.this, exp.Identifier):
            raise obstacle(source, "table function", "not maintained from changes yet")
        if not source.args.get("db") and source.name in self.ctes:
            return Input(source.alias_or_name, self.ctes[source.name])
        name = str(TableName(source.catalog, source.db, source.name))
        info = self.bound.tables.get(name)
        if info is None:
            raise obstacle(source, name, "the table could not be resolved")
        if not info.versioned:
            raise obstacle(
                source,
                name,
                "the table has no snapshots to take changes from",
                "store it as an Iceberg table",
            )
        scan = Scan(name, tuple(column.name.lower() for column in info.columns))
        return Input(source.alias_or_name, scan)

    def _refuse_modifiers_of_source(self, source: exp.Expr) -> None:
        for key, operator in (
            ("sample", "TABLESAMPLE"),
            ("pivots", "PIVOT"),
            ("laterals", "LATERAL VIEW"),
            ("version", "time travel"),
            ("when", "time travel"),
            ("hints", "hint"),
        ):
            if source.args.get(key):
                raise obstacle(source, operator, "not maintained from changes")

    def _grouped(
        self,
        tree: exp.Select,
        inputs: tuple[Input, ...],
        conditions: tuple[Expr, ...],
        group: exp.Group | None,
        having: exp.Having | None,
        calls: dict[exp.Expr, tuple[str, exp.Expr | None, bool]],
    ) -> Node:
        if group is not None:
            for key in ("rollup", "cube", "grouping_sets", "totals", "all"):
                if group.args.get(key):
                    raise obstacle(group, key.upper(), "not maintained from changes yet")
        functions = self.catalog.functions()
        keys = list(dict.fromkeys(group.expressions)) if group is not None else []
        outputs: list[Output] = []
        taken: set[str] = set()
        replaced: dict[exp.Expr, str] = {}
        for key in keys:
            if isinstance(key, exp.Rollup | exp.Cube | exp.GroupingSets):
                raise obstacle(key, key.key.upper(), "not maintained from changes yet")
            check_scalar(key, functions)
            name = _fresh(key.name if isinstance(key, exp.Column) else "key", taken)
            outputs.append(Output(name, to_expr(key)))
            replaced[key] = name
        key_names = tuple(output.name for output in outputs)
        arguments: dict[exp.Expr, str] = {}
        for _, argument, _ in calls.values():
            if argument is None or argument in arguments:
                continue
            check_scalar(argument, functions)
            if argument in replaced:
                arguments[argument] = replaced[argument]
                continue
            name = _fresh(argument.name if isinstance(argument, exp.Column) else "arg", taken)
            outputs.append(Output(name, to_expr(argument)))
            arguments[argument] = name
        if not outputs:
            outputs = [Output("one", Expr("1"))]
        below = Select(inputs, conditions, tuple(outputs))
        types = {column.name: column for column in self.catalog.schema(self._plain(below))}
        made: list[Call] = []
        for call, (function, argument, distinct) in calls.items():
            arg = arguments[argument] if argument is not None else None
            name = _fresh(function.lower() if arg is None else f"{function.lower()}_{arg}", taken)
            column = types[arg] if arg is not None else Column("", "bigint", False)
            made.append(Call(name, function, arg, distinct, column.type, column.nullable, ""))
            replaced[call] = name
        untyped = Aggregate(below, key_names, tuple(made))
        result = {column.name: column.type for column in self.catalog.schema(self._plain(untyped))}
        grouped = Aggregate(
            below,
            key_names,
            tuple(
                Call(
                    c.name,
                    c.function,
                    c.arg,
                    c.distinct,
                    c.arg_type,
                    c.arg_nullable,
                    result[c.name],
                )
                for c in made
            ),
        )
        above = [
            Output(item.alias_or_name, self._above(item.unalias(), replaced))
            for item in tree.expressions
        ]
        kept = tuple(
            self._above(term, replaced) for term in conjuncts(having.this if having else None)
        )
        return Select((Input(_GROUPED, grouped),), kept, _named(above))

    def _above(self, node: exp.Expr, replaced: dict[exp.Expr, str]) -> Expr:
        """An expression over groups: keys and calls become columns of the grouped relation."""

        def swap(part: exp.Expr) -> exp.Expr:
            name = replaced.get(part)
            return part if name is None else exp.column(exp.to_identifier(name), table=_GROUPED)

        swapped = node.copy().transform(swap)
        check_scalar(swapped, self.catalog.functions())
        for column in swapped.find_all(exp.Column):
            if column.table != _GROUPED or column.name not in replaced.values():
                raise obstacle(
                    column, column.sql(dialect="spark"), "neither grouped nor aggregated"
                )
        return to_expr(swapped)

    def _plain(self, node: Node) -> str:
        """The node as SQL over the tables as they are now."""
        return fill(render(node, lambda table: TableName.parse(table).sql), lambda hole: hole)


def _union_parts(node: Node) -> tuple[Node, ...]:
    return node.inputs if isinstance(node, UnionAll) else (node,)


def _fresh(wanted: str, taken: set[str]) -> str:
    name, number = wanted, 2
    while name in taken:
        name, number = f"{wanted}_{number}", number + 1
    taken.add(name)
    return name


def _named(outputs: list[Output]) -> tuple[Output, ...]:
    names = [output.name for output in outputs]
    if len(set(names)) != len(names) or not all(names):
        raise Unsupported(Reason("column names", f"not unique: {', '.join(names)}"))
    return tuple(outputs)


def _renamed(node: Node, names: list[str]) -> Node:
    if not names or tuple(names) == node.columns:
        return node
    if len(names) != len(node.columns):
        raise Unsupported(Reason("column aliases", "their number differs from the columns'"))
    pairs = zip(names, node.columns, strict=True)
    return Select(
        (Input("s", node),), (), tuple(Output(new, Expr.column("s", old)) for new, old in pairs)
    )
