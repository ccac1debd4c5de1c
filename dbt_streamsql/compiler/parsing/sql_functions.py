"""SQL functions of a schema: one expression each, inlined into the query that calls them.

Table catalogs hold no functions; Spark's temporary functions end with their session and are not
allowed in a stored view. A call that is replaced by the function's expression needs neither: views
keep it, materialized views are maintained through it, and an aggregate is as good as a scalar.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cached_property

from sqlglot import Token, TokenType, exp
from sqlglot.errors import SqlglotError

from dbt_streamsql.compiler.parsing.builtin_functions import AGGREGATES, VOLATILE
from dbt_streamsql.compiler.parsing.dialect import parse_all, tokens_of
from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.quoting import TableName, quote

KINDS = ("scalar", "aggregate")

_TYPE = re.compile(r"[A-Za-z][A-Za-z0-9_]*(\s*[(<][A-Za-z0-9_<>,:() ]*[)>])?")
_PART = r"(?:`(?:[^`]|``)+`|\w+)"
_NAME = re.compile(_PART)
_CALL = re.compile(rf"{_PART}\s*\.\s*{_PART}\s*\.\s*{_PART}\s*\(")
_OPENING = {TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE}
_CLOSING = {TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE}


@dataclass(frozen=True)
class Parameter:
    """`type` is a Spark type; `default` an expression, or None where a call must give a value."""

    name: str
    type: str
    default: str | None = None


@dataclass(frozen=True)
class Function:
    """`body` is an expression over the parameters, or `SELECT` and an expression.

    `volatility` is what the author declared; what counts is the body, which callers contain.
    """

    name: str
    kind: str
    parameters: tuple[Parameter, ...]
    returns: str
    body: str
    volatility: str = ""

    @classmethod
    def from_json(cls, text: str) -> Function:
        stored = json.loads(text)
        parameters = tuple(Parameter(**item) for item in stored.pop("parameters"))
        return cls(parameters=parameters, **stored)

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    def checked(self) -> Function:
        """The same function; FUNCTION_INVALID when it could not replace a call."""
        if self.kind not in KINDS:
            raise self._refused("has an unknown kind", self.kind, ", ".join(KINDS))
        for type_ in (self.returns, *(parameter.type for parameter in self.parameters)):
            if not _TYPE.fullmatch(type_.strip()):
                raise self._refused("has a type that cannot be read", type_, "a type of Spark")
        names = [parameter.name.lower() for parameter in self.parameters]
        if len(set(names)) < len(names):
            raise self._refused("has two parameters with the same name", ", ".join(names))
        calls = {node.name.lower() for node in self._tree.find_all(exp.Anonymous)}
        calls |= {node.sql_name().lower() for node in self._tree.find_all(exp.Func)}
        if bool(calls & AGGREGATES) is not (self.kind == "aggregate"):
            allowed = "an aggregate function calls aggregates, a scalar function calls none"
            raise self._refused("has a different kind than its body", self.kind, allowed)
        return self

    @property
    def sample(self) -> str:
        """A query with which Spark checks the types and the body."""
        names = [f"CAST(NULL AS {p.type}) AS {quote(p.name)}" for p in self.parameters]
        return (
            f"SELECT CAST(({self._text}) AS {self.returns}) AS `result` "
            f"FROM (SELECT {', '.join(names) or '1'})"
        )

    def call(self, arguments: list[str]) -> str:
        """The expression that a call stands for. Error: FUNCTION_INVALID."""
        given = dict(zip((p.name.lower() for p in self.parameters), arguments, strict=False))
        defaults = {p.name.lower(): p.default for p in self.parameters if p.default is not None}
        values = {**defaults, **given}
        if len(arguments) > len(self.parameters) or len(values) < len(self.parameters):
            wanted = ", ".join(f"{p.name} {p.type}" for p in self.parameters)
            raise self._refused(f"is called with {len(arguments)} arguments", "", wanted)
        text = self._text
        types = {p.name.lower(): p.type for p in self.parameters}
        uses = [name for _, _, name in self._uses]
        for start, end, name in reversed(self._uses):
            if uses.count(name) > 1 and _is_volatile(values[name]):
                raise self._refused(
                    "uses a volatile argument more than once",
                    values[name],
                    hint="compute the value in a sub-query and pass its column",
                )
            text = f"{text[:start]}CAST(({values[name]}) AS {types[name]}){text[end:]}"
        return f"CAST(({text}) AS {self.returns})"

    @cached_property
    def _tree(self) -> exp.Expr:
        try:
            tree = parse_all(self._text)[0]
        except SqlglotError as error:
            raise self._refused("cannot be read", self.body) from error
        if tree.find(exp.Query):
            raise self._refused(
                "has a query in its body", self.body, "one expression over the parameters"
            )
        return tree

    @cached_property
    def _text(self) -> str:
        tokens = _tokens(self.body)
        if tokens and tokens[0].token_type is TokenType.SELECT:
            tokens = tokens[1:]
        while tokens and tokens[-1].token_type is TokenType.SEMICOLON:
            tokens = tokens[:-1]
        return self.body[tokens[0].start : tokens[-1].end + 1] if tokens else ""

    @cached_property
    def _uses(self) -> list[tuple[int, int, str]]:
        """Where the body names a parameter: start, end and name, in order."""
        names = {parameter.name.lower() for parameter in self.parameters}
        found = []
        for column in self._tree.find_all(exp.Column):
            first = column.parts[0]
            if first.name.lower() in names:
                found.append((first.meta["start"], first.meta["end"] + 1, first.name.lower()))
        return sorted(found)

    def _refused(
        self, message: str, given: str, allowed: str = "", hint: str = ""
    ) -> StreamSqlError:
        return StreamSqlError(
            "FUNCTION_INVALID",
            f"the function {self.name} {message}",
            given=given,
            allowed=allowed,
            hint=hint,
        )


def may_call(sql: str) -> bool:
    """Whether a text may call a function of a schema: a quick check."""
    return _CALL.search(sql) is not None


def expand(sql: str, find: Callable[[TableName], Function | None]) -> str:
    """The text with every call of a known function replaced by its expression.

    Errors: FUNCTION_INVALID, CYCLE.
    """
    return _expand(sql, find, ()) if may_call(sql) else sql


def _expand(
    sql: str, find: Callable[[TableName], Function | None], inside: tuple[TableName, ...]
) -> str:
    tokens = _tokens(sql)
    pieces, done, at = [], 0, 0
    while at < len(tokens):
        name = _name(sql, tokens, at)
        function = find(name) if name is not None else None
        if name is None or function is None:
            at += 1
            continue
        if name in inside:
            path = " -> ".join(str(step) for step in (*inside, name))
            raise StreamSqlError("CYCLE", "a function calls itself", given=path)
        closing, arguments = _arguments(sql, tokens, at + 5)
        given = [_expand(argument, find, inside) for argument in arguments]
        text = _expand(function.call(given), find, (*inside, name))
        pieces += [sql[done : tokens[at].start], text]
        done = tokens[closing].end + 1
        at = closing + 1
    return "".join([*pieces, sql[done:]])


def _name(sql: str, tokens: list[Token], at: int) -> TableName | None:
    """The three-part name of the call that begins at `at`."""
    six = tokens[at : at + 6]
    if [token.token_type for token in six[1::2]] != [*[TokenType.DOT] * 2, TokenType.L_PAREN]:
        return None
    parts = six[:5:2]
    if not all(_NAME.fullmatch(sql, token.start, token.end + 1) for token in parts):
        return None
    return TableName(*(token.text for token in parts))


def _arguments(sql: str, tokens: list[Token], opening: int) -> tuple[int, list[str]]:
    """The position of the closing parenthesis, and the arguments' texts."""
    depth, first, found = 0, opening + 1, []
    for at in range(opening, len(tokens)):
        kind = tokens[at].token_type
        depth += (kind in _OPENING) - (kind in _CLOSING)
        if depth == 0 or (depth == 1 and kind is TokenType.COMMA):
            # From token to token: a comment at the end would swallow what comes after it.
            found.append(sql[tokens[first].start : tokens[at - 1].end + 1] if first < at else "")
            first = at + 1
        if depth == 0:
            return at, found if found != [""] else []
    raise StreamSqlError(
        "SQL_UNSUPPORTED", "a call has no closing parenthesis", given=sql[tokens[opening].start :]
    )


def _is_volatile(text: str) -> bool:
    return any(token.text.lower() in VOLATILE for token in _tokens(text))


def _tokens(text: str) -> list[Token]:
    try:
        return tokens_of(text)
    except SqlglotError as error:
        raise StreamSqlError(
            "SQL_UNSUPPORTED", "the compiler cannot read this text", given=str(error)
        ) from error
