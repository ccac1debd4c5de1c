"""Spark's pipe syntax: `FROM t |> WHERE … |> SELECT …` rewritten as query blocks.

Each operator reads what precedes it as a relation. Table names stay visible after an operator, so
conditions, joins and an order go into the block that is open, and a block around another one keeps
the name of its only table.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

from sqlglot import TokenType, exp
from sqlglot.parsers.spark import SparkParser

_BESIDE = "beside"
"""The key of the words that a node adds to those of the text; below zero: words it omits."""
REPEATED = "repeated"
"""A GROUP BY whose text was given once, for both the groups and the columns."""
BARE = "bare"
"""The key under which a table from `TABLE t` keeps the offset of that word."""
_FROM_ALONE = {"select": 1, "*": 1}
_BLOCK = {**_FROM_ALONE, "from": 1}
_TABLE_ALONE = {**_BLOCK, "table": -1}
_ENDS = frozenset(
    [
        *(TokenType.SELECT, TokenType.INSERT, TokenType.PIPE_GT),
        *(TokenType.UNION, TokenType.EXCEPT, TokenType.INTERSECT),
    ]
)
"""What can follow `FROM …` in its query."""
_CUT = ("limit", "offset")
_ORGANIZED = ("order", "sort", "distribute", "cluster", *_CUT)
_OUTSIDE_LIST = ("from_", "joins", "laterals", "where", "group", "having", "qualify")


def said_beside(tree: exp.Expr) -> Counter[str]:
    """How much more often a tree has each word than its text; below zero: less often."""
    found: Counter[str] = Counter()
    for node in tree.walk():
        found.update(node.meta.get(_BESIDE, {}))
    return found


@dataclass(slots=True)
class _Pipe:
    """What has been read so far: a block that accepts more clauses while it is `open`."""

    block: exp.Select
    open: bool
    beside: Counter[str] = field(default_factory=Counter)

    def begin(self, source: exp.Expr) -> exp.Select:
        """A block that reads all of a relation."""
        self.block, self.open = _all_of(source), True
        self.beside.update(_BLOCK)
        return self.block

    def wrap(self) -> exp.Select:
        """A block around everything read so far."""
        inner = exp.Subquery(this=self.block)
        name = _only_table(self.block)
        if name is not None:
            inner.set("alias", exp.TableAlias(this=name.copy()))
            self.beside[name.name.lower()] += 1
        return self.begin(inner)

    def without(self, *taken: str) -> exp.Select:
        """The open block if it has none of these clauses; otherwise a new block around it."""
        if self.open and not any(self.block.args.get(key) for key in taken):
            return self.block
        return self.wrap()

    def show(self, columns: list[exp.Expr]) -> None:
        """Let the block compute columns instead of reading all."""
        self.block.set("expressions", columns)
        self.open = False
        self.beside["*"] -= 1


def _begun(query: exp.Expr) -> tuple[exp.Select, bool]:
    if isinstance(query, exp.Select):
        return query, _BESIDE in query.meta and not any(query.args.get(k) for k in _ORGANIZED)
    named = isinstance(query, exp.Values) and query.args.get("alias")
    is_relation = isinstance(query, exp.Subquery) or named
    block = _all_of(query if is_relation else exp.Subquery(this=query))
    block.meta[_BESIDE] = Counter(_BLOCK)
    return block, True


def _all_of(source: exp.Expr) -> exp.Select:
    return exp.Select(expressions=[exp.Star()], from_=exp.From(this=source))


def _only_table(block: exp.Select) -> exp.Identifier | None:
    source = block.args["from_"].this if block.args.get("from_") else None
    if source is None or block.args.get("joins") or source.args.get("joins"):
        return None
    alias = source.args.get("alias")
    name = alias.this if alias else source.this
    return name if isinstance(name, exp.Identifier) else None


class PipeParser(SparkParser):
    """Spark's parser, with `|>`, `TABLE t` and `FROM t` without SELECT."""

    SUPPORTS_TABLE_QUERY: ClassVar = True

    def _parse_select(
        self,
        nested: bool = False,
        table: bool = False,
        parse_subquery_alias: bool = True,
        parse_set_operation: bool = True,
        consume_pipe: bool = True,
    ) -> Any:
        query = super()._parse_select(
            nested, table, parse_subquery_alias, parse_set_operation, consume_pipe=False
        )
        # What follows a relation, `(…) AS q |> …`, belongs to the query that reads it.
        return self._piped(query) if consume_pipe and not table else query

    def _parse_wrapped_select(self, table: bool = False) -> exp.Expr | None:
        return self._piped(super()._parse_wrapped_select(table))

    def _piped(self, query: exp.Expr | None) -> exp.Expr | None:
        if query is None or self._curr.token_type is not TokenType.PIPE_GT:
            return query
        return self._parse_pipe_syntax_query(query)

    def _parse_select_query(self, *args: bool, **kwargs: bool) -> exp.Expr | None:
        first, begin = self._curr, self._index
        found = super()._parse_select_query(*args, **kwargs)
        block = found
        while isinstance(block, exp.SetOperation):
            block = block.this
        if block is None:
            return None
        if first.token_type is TokenType.TABLE:
            block.meta[_BESIDE] = Counter(_TABLE_ALONE)
            block.args["from_"].this.meta[BARE] = first.start
        if first.token_type is TokenType.FROM and self._is_from_alone(begin):
            block.meta[_BESIDE] = Counter(_FROM_ALONE)
            joins = block.args["from_"].this.args.pop("joins", None) or []
            block.set("joins", [*joins, *(block.args.get("joins") or [])])
        return found

    def _is_from_alone(self, begin: int) -> bool:
        """Whether the tokens read from `begin` on start with `FROM …` without SELECT."""
        depth = 0
        for token in self._tokens[begin : self._index]:
            kind = token.token_type
            depth += (kind is TokenType.L_PAREN) - (kind is TokenType.R_PAREN)
            if not depth and kind in _ENDS:
                return kind not in (TokenType.SELECT, TokenType.INSERT)
        return True

    def _parse_pipe_syntax_query(self, query: exp.Expr) -> exp.Select:
        """Read the operators after a query; the parser is at the first `|>`."""
        pipe = _Pipe(*_begun(query))
        if not pipe.open:
            pipe.wrap()
        while self._match(TokenType.PIPE_GT):
            pipe.beside["|>"] -= 1
            word = self._curr.text.upper().split()[0]
            self._OPERATORS.get(word, PipeParser._pipe_join_or_set_operation)(self, pipe)
        pipe.block.meta.setdefault(_BESIDE, Counter()).update(pipe.beside)
        return pipe.block

    def _pipe_select(self, pipe: _Pipe) -> None:
        found = self._parse_select(consume_pipe=False, parse_set_operation=False)
        if any(found.args.get(key) for key in _OUTSIDE_LIST):
            self.raise_error("expected only columns after |> SELECT")
        block = pipe.without(*_ORGANIZED)
        for key, value in found.args.items():
            if value:
                block.set(key, value)
        pipe.show(found.expressions)
        pipe.beside["select"] -= 1

    def _pipe_extend(self, pipe: _Pipe) -> None:
        self._advance()
        pipe.without(*_ORGANIZED)
        pipe.show([exp.Star(), *self._parse_expressions()])
        pipe.beside.update({"*": 1, ",": 1, "extend": -1})

    def _pipe_set(self, pipe: _Pipe) -> None:
        self._advance()
        assignments = self._parse_csv(self._parse_assignment)
        for assignment in assignments:
            if not isinstance(assignment, exp.EQ) or not isinstance(assignment.this, exp.Column):
                self.raise_error("expected column = value after |> SET")
            pipe.without("joins", *_ORGANIZED)
            named = exp.Alias(this=assignment.expression, alias=assignment.this.this)
            pipe.show([exp.Star(replace=[named])])
            pipe.beside.update({"*": 1, "|>": 1})
            pipe.wrap()  # it can only be written in parentheses
        pipe.beside.update({"set": len(assignments) - 1, ",": 1 - len(assignments)})

    def _pipe_drop(self, pipe: _Pipe) -> None:
        self._advance()
        names = self._parse_csv(self._parse_id_var)
        pipe.without(*_ORGANIZED)
        pipe.show([exp.Star(except_=names)])
        pipe.beside.update({"*": 1, "except": 1, "drop": -1})

    def _pipe_where(self, pipe: _Pipe) -> None:
        block = pipe.without(*_ORGANIZED)
        known: exp.Expr | None = block.args.get("where")
        condition: Any = self._parse_where()
        if known is None:
            block.set("where", condition)
        else:
            known.set("this", exp.and_(known.this, condition.this, copy=False))
            pipe.beside.update({"where": -1, "and": 1})

    def _pipe_as(self, pipe: _Pipe) -> None:
        self._advance()
        name = self._parse_id_var(any_token=True)
        pipe.begin(exp.Subquery(this=pipe.block, alias=exp.TableAlias(this=name)))

    def _pipe_aggregate(self, pipe: _Pipe) -> None:
        self._advance()
        block = pipe.without(*_ORGANIZED)
        grouped = self._match(TokenType.GROUP_BY)
        shown = [] if grouped else self._parse_expressions()
        keys: list[exp.Expr] = []
        if grouped or self._match(TokenType.GROUP_BY):
            keys = self._parse_expressions()
            groups = [key.this if isinstance(key, exp.Alias) else key for key in keys]
            if any(isinstance(group, exp.Literal) for group in groups):
                self.raise_error("a position in |> AGGREGATE … GROUP BY")
            block.set("group", exp.Group(expressions=[group.copy() for group in groups]))
            block.args["group"].meta[REPEATED] = True
            pipe.beside[","] += bool(shown)
        pipe.show([*keys, *shown])
        pipe.beside.update({"aggregate": -1})

    def _pipe_organize(self, pipe: _Pipe) -> None:
        cuts = self._curr.text.upper() in ("LIMIT", "OFFSET")
        self._parse_query_modifiers(pipe.without(*(_CUT if cuts else _ORGANIZED)))

    def _pipe_pivot(self, pipe: _Pipe) -> None:
        block = pipe.without("where", "joins", *_ORGANIZED)
        if block.args["from_"].this.args.get("pivots"):
            block = pipe.wrap()
        block.args["from_"].this.set("pivots", self._parse_pivots())

    def _pipe_join_or_set_operation(self, pipe: _Pipe) -> None:
        organized = any(pipe.block.args.get(key) for key in _ORGANIZED)
        left = exp.Subquery(this=pipe.block) if organized else pipe.block
        found = self.parse_set_operation(left)
        if found is not None:
            pipe.begin(exp.Subquery(this=found))
            return
        if organized:
            left.set("this", None)
        join = self._parse_join()
        if join is None:
            self.raise_error(f"unknown pipe operator |> {self._curr.text}")
        pipe.without("where", *_ORGANIZED).append("joins", join)

    _OPERATORS: ClassVar[dict[str, Callable[[PipeParser, _Pipe], None]]] = {
        "SELECT": _pipe_select,
        "EXTEND": _pipe_extend,
        "SET": _pipe_set,
        "DROP": _pipe_drop,
        "WHERE": _pipe_where,
        "AS": _pipe_as,
        "AGGREGATE": _pipe_aggregate,
        "PIVOT": _pipe_pivot,
        "UNPIVOT": _pipe_pivot,
        **dict.fromkeys(
            ("ORDER", "SORT", "DISTRIBUTE", "CLUSTER", "LIMIT", "OFFSET"), _pipe_organize
        ),
    }
