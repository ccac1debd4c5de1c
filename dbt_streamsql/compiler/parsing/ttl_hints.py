"""The hint `/*+ STATE_TTL('o' = '3d', 's' = '1d') */`, which only this compiler reads.

Spark cannot read the arguments of such a hint, so Spark gets the text without it.
"""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import Token, TokenType

from dbt_streamsql.compiler.parsing.dialect import tokens_of
from dbt_streamsql.errors import Place, StreamSqlError

_NAME = "state_ttl"


def ttl_hints(sql: str) -> dict[str, str]:
    """What the hints of a query say: input -> length of time. Error: SQL_INVALID."""
    return {name: time for found in _hints(sql) for name, time in found[2].items()}


def without_ttl_hints(sql: str) -> str:
    """The query without such hints; every other character keeps its position."""
    for start, end, _ in _hints(sql):
        gap = "".join(c if c == "\n" else " " for c in sql[start:end])
        sql = sql[:start] + gap + sql[end:]
    return sql


def _hints(sql: str) -> Iterator[tuple[int, int, dict[str, str]]]:
    """(start, end, content) of each hint; the whole `/*+ … */` if it holds nothing else."""
    if _NAME not in sql.lower():
        return
    for comment in tokens_of(sql):
        if comment.token_type is not TokenType.HINT:
            continue
        begin = comment.start + len("/*+")
        inside = tokens_of(sql[begin : comment.end + 1 - len("*/")])
        for first, token in enumerate(inside):
            if token.text.lower() != _NAME:
                continue
            last = _closing(inside, first)
            said = _said(inside[first + 2 : last])
            if (first, last) == (0, len(inside) - 1):
                yield comment.start, comment.end + 1, said
                continue
            # Next to other hints, it takes the comma before it, or the one after it.
            start = inside[first - 1] if first else token
            after = inside[last + 1 : last + 2]
            comma = not first and after and after[0].token_type is TokenType.COMMA
            yield begin + start.start, begin + (after[0] if comma else inside[last]).end + 1, said


def _closing(tokens: list[Token], first: int) -> int:
    for at in range(first + 1, len(tokens)):
        if tokens[at].token_type is TokenType.R_PAREN:
            return at
    raise _wrong(tokens[first].text)


def _said(parts: list[Token]) -> dict[str, str]:
    said: dict[str, str] = {}
    for at in range(0, len(parts), 4):
        pair = parts[at : at + 3]
        after = parts[at + 3 : at + 4]
        kinds = [part.token_type for part in pair]
        if kinds != [TokenType.STRING, TokenType.EQ, TokenType.STRING] or (
            after and after[0].token_type is not TokenType.COMMA
        ):
            raise _wrong(" ".join(part.text for part in parts))
        said[pair[0].text] = pair[2].text
    return said


def _wrong(given: str) -> StreamSqlError:
    return StreamSqlError(
        "SQL_INVALID",
        "the hint STATE_TTL cannot be read",
        given=given,
        allowed="/*+ STATE_TTL('alias' = '1 day', 'other' = '12 h') */",
        place=Place(),
    )
