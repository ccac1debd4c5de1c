"""One form for all queries that differ only in names and in the order of their columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count

from dbt_streamsql.plan.algebra.expression import Expr, Ref
from dbt_streamsql.plan.algebra.relational import (
    Aggregate,
    Call,
    Constant,
    Generate,
    Input,
    Limit,
    Match,
    Node,
    Output,
    Over,
    Scan,
    Select,
    UnionAll,
    Window,
    walk,
)

Names = Mapping[str, str]
"""Old column -> new column."""


def normal_form(node: Node) -> tuple[Node, Names]:
    """The same rows under other names, and the new name of each column.

    Nodes that are equal up to names and the order of columns become equal. Conditions keep their
    order: one may guard the next (`b <> 0 AND a / b > 1`).
    """
    leaves = (each for each in walk(node) if isinstance(each, Scan | Constant))
    return _Renaming({name for leaf in leaves for name in leaf.columns}).of(node)


@dataclass
class _Renaming:
    taken: set[str]
    _numbers: Iterator[int] = field(default_factory=count)

    def of(self, node: Node) -> tuple[Node, Names]:
        if isinstance(node, Scan):
            return replace(node, columns=tuple(sorted(node.columns))), _same(node.columns)
        if isinstance(node, Constant):
            return node, _same(node.columns)
        if isinstance(node, Select):
            return self._select(node)
        if isinstance(node, Match):
            return self._match(node)
        if isinstance(node, UnionAll):
            return self._union(node)
        assert isinstance(node, Aggregate | Window | Limit | Generate)
        below, names = self.of(node.input)
        if isinstance(node, Aggregate):
            return self._aggregate(node, below, names)
        if isinstance(node, Window):
            return self._window(node, below, names)
        if isinstance(node, Limit):
            order = tuple(_inside(expr, names) for expr in node.order)
            sortable, unlike = _ties(node, names)
            limited = replace(node, input=below, order=order, sortable=sortable, unlike=unlike)
            return limited, names
        return self._generate(node, below, names)

    def _new(self) -> str:
        return next(name for at in self._numbers if (name := f"p{at}") not in self.taken)

    def _inputs(
        self, inputs: Sequence[Input], aliases: Sequence[str]
    ) -> tuple[list[Input], dict[Ref, Ref]]:
        made: list[Input] = []
        refs: dict[Ref, Ref] = {}
        for child, alias in zip(inputs, aliases, strict=True):
            below, names = self.of(child.node)
            made.append(Input(alias, below))
            refs |= {(child.alias, old): (alias, new) for old, new in names.items()}
        return made, refs

    def _outputs(
        self, outputs: Iterable[Output], refs: Mapping[Ref, Ref]
    ) -> tuple[tuple[Output, ...], Names]:
        exprs = {output.name: _over(output.expr, refs) for output in outputs}
        order = sorted(exprs, key=lambda name: _key(exprs[name]))
        names = {name: self._new() for name in order}
        return tuple(Output(names[name], exprs[name]) for name in order), names

    def _select(self, node: Select) -> tuple[Node, Names]:
        made, refs = self._inputs(node.inputs, [f"i{at}" for at in range(len(node.inputs))])
        where = tuple(_over(expr, refs) for expr in node.where)
        outputs, names = self._outputs(node.outputs, refs)
        return Select(tuple(made), where, outputs), names

    def _match(self, node: Match) -> tuple[Node, Names]:
        (left, right), refs = self._inputs((node.left, node.right), ("l", "r"))
        on = tuple(_over(expr, refs) for expr in node.on)
        outputs, names = self._outputs(node.outputs, refs)
        types = tuple(sorted((refs[ref], kind) for ref, kind in node.types if ref in refs))
        return Match(node.kind, left, right, on, outputs, types, exact=node.exact), names

    def _union(self, node: UnionAll) -> tuple[Node, Names]:
        """The columns of all inputs in the order of the first one's."""
        found = [self.of(child) for child in node.inputs]
        first, names = found[0]
        was = {new: old for old, new in names.items()}
        places = [node.columns.index(was[new]) for new in first.columns]
        inputs = [first]
        for child, (below, renamed) in zip(node.inputs[1:], found[1:], strict=True):
            wanted = tuple(renamed[child.columns[at]] for at in places)
            inputs.append(below if wanted == below.columns else _picked(below, wanted))
        return UnionAll(tuple(inputs)), names

    def _aggregate(self, node: Aggregate, below: Node, names: Names) -> tuple[Node, Names]:
        calls = {call.name: _call(call, names) for call in node.calls}
        order = sorted(calls, key=lambda name: repr(calls[name]))
        made = {name: self._new() for name in order}
        session = node.session
        if session is not None:
            made[session.name] = self._new()
            session = replace(session, name=made[session.name], time=names[session.time])
        keys = {key: names[key] for key in node.keys}
        return replace(
            node,
            input=below,
            keys=tuple(sorted(keys.values())),
            calls=tuple(replace(calls[name], name=made[name]) for name in order),
            session=session,
        ), keys | made

    def _window(self, node: Window, below: Node, names: Names) -> tuple[Node, Names]:
        overs = {
            over.name: Over(
                "",
                _inside(over.call, names),
                tuple(_inside(expr, names) for expr in over.order),
                over.frame,
                over.ties,
            )
            for over in node.overs
        }
        order = sorted(overs, key=lambda name: repr(overs[name]))
        made = {name: self._new() for name in order}
        sortable, unlike = _ties(node, names)
        return replace(
            node,
            input=below,
            partition=tuple(sorted(names[name] for name in node.partition)),
            overs=tuple(replace(overs[name], name=made[name]) for name in order),
            sortable=sortable,
            unlike=unlike,
        ), {**names, **made}

    def _generate(self, node: Generate, below: Node, names: Names) -> tuple[Node, Names]:
        made = {name: self._new() for name in node.names}
        return replace(
            node, input=below, call=_inside(node.call, names), names=tuple(made.values())
        ), {**names, **made}


def _same(columns: Iterable[str]) -> Names:
    return {name: name for name in columns}


def _over(expr: Expr, refs: Mapping[Ref, Ref]) -> Expr:
    """An expression with other columns, numbered in order of appearance."""
    return expr.over({ref: Expr.column(*refs[ref]) for ref in expr.refs})


def _inside(expr: Expr, names: Names) -> Expr:
    """An expression over the one input of a node, whose alias is always the same."""
    return _over(expr, {ref: (ref[0], names[ref[1]]) for ref in expr.refs})


def _key(expr: Expr) -> tuple[str, tuple[Ref, ...]]:
    return expr.template, expr.refs


def _call(call: Call, names: Names) -> Call:
    arg = None if call.arg is None else names[call.arg]
    return replace(call, name="", arg=arg, args=tuple(names[name] for name in call.args))


def _ties(
    node: Window | Limit, names: Names
) -> tuple[tuple[str, ...], tuple[tuple[str, str], ...]]:
    """The tie-breakers. Their order decides which rows come first: it stays."""
    unlike = tuple((names[name], kind) for name, kind in node.unlike)
    return tuple(names[name] for name in node.sortable), unlike


def _picked(node: Node, columns: tuple[str, ...]) -> Select:
    return Select(
        (Input("i0", node),), (), tuple(Output(name, Expr.column("i0", name)) for name in columns)
    )
