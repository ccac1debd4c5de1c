"""Calls of `streamsql_changelog('view', from, to, 'mode')` in the FROM of a query.

Like the functions of a project (`udf`), they are expanded before Spark sees the text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import Token, TokenType
from sqlglot.errors import SqlglotError

from dbt_streamsql.compiler.parsing.dialect import tokens_of
from dbt_streamsql.errors import Place, StreamSqlError

CHANGELOG = "streamsql_changelog"
_ALLOWED = f"{CHANGELOG}('catalog.schema.view', from_barrier [, to_barrier [, 'mode']])"


@dataclass(frozen=True)
class ChangelogCall:
    """One call: its arguments, its offsets in the text, and its place for errors."""

    view: str
    after: int
    upto: int | None
    mode: str
    start: int
    end: int
    place: Place


def changelog_calls(sql: str) -> list[ChangelogCall]:
    """Every call in a text, in order. FUNCTION_INVALID when one has unsupported arguments."""
    if CHANGELOG not in sql.lower():
        return []
    try:
        tokens = tokens_of(sql)
    except SqlglotError as error:
        raise StreamSqlError(
            "SQL_UNSUPPORTED", "the compiler cannot read this text", given=str(error)
        ) from error
    return [
        _call(sql, tokens, at)
        for at in range(len(tokens) - 1)
        if tokens[at].text.lower() == CHANGELOG
        and tokens[at].token_type is TokenType.VAR
        and tokens[at + 1].token_type is TokenType.L_PAREN
        and (at == 0 or tokens[at - 1].token_type is not TokenType.DOT)
    ]


def write_out(sql: str, queries: Sequence[str]) -> str:
    """The text with its calls replaced by queries, in order."""
    for call, query in reversed(list(zip(changelog_calls(sql), queries, strict=True))):
        sql = f"{sql[: call.start]}({query}){sql[call.end :]}"
    return sql


def refuse_calls(sql: str, what: str) -> None:
    """FUNCTION_INVALID when a text that is stored and run again later has a call."""
    for call in changelog_calls(sql):
        raise StreamSqlError(
            "FUNCTION_INVALID",
            f"{what} cannot call {CHANGELOG}: the barriers in the call would never change",
            given=sql[call.start : call.end],
            allowed="tables, python and incremental models, tests, `dbt show`, Engine.sql",
            hint="set `changelog: true` on the view, and read its changelog table",
            place=call.place,
        )


def _call(sql: str, tokens: list[Token], at: int) -> ChangelogCall:
    name = tokens[at]
    place = Place("", name.line, name.col - (name.end - name.start))
    values: list[str | int] = []
    position = at + 2
    while position < len(tokens):
        value = tokens[position]
        kind = value.token_type
        if kind in (TokenType.STRING, TokenType.RAW_STRING):
            values.append(value.text)
        elif kind is TokenType.NUMBER and value.text.isdecimal():
            values.append(int(value.text))
        else:
            break
        closing = tokens[position + 1] if position + 1 < len(tokens) else value
        if closing.token_type is TokenType.R_PAREN:
            kinds = [type(item) for item in values]
            if kinds not in ([str, int], [str, int, int], [str, int, int, str]):
                break
            view, after, upto, mode = (*values, None, None)[:4]
            return ChangelogCall(
                str(view),
                int(after or 0),
                None if upto is None else int(upto),
                "retract" if mode is None else str(mode),
                name.start,
                closing.end + 1,
                place,
            )
        if closing.token_type is not TokenType.COMMA:
            break
        position += 2
    given = sql[name.start : tokens[min(position + 1, len(tokens) - 1)].end + 1]
    raise StreamSqlError(
        "FUNCTION_INVALID",
        f"{CHANGELOG} takes a view, one or two barriers and a mode, all constants",
        given=given,
        allowed=_ALLOWED,
        place=place,
    )
