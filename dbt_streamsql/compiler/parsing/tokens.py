"""The tokens of a text as Spark reads them: whole literals, names that look like keywords.

Spark reserves no words: `values`, `from` or `and` may name a column, an alias or a table, and the
words around it decide. The tokenizer looks at single words, so the neighbors are checked here.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import Dialect, Token, TokenType

_WORDS = frozenset(
    [
        *("all", "alter", "and", "as", "between", "case", "collate", "create", "cross", "cube"),
        *("describe", "distinct", "drop", "else", "except", "fetch", "for", "from", "grant"),
        *("having", "ilike", "inner", "insert", "intersect", "into", "join", "lateral", "like"),
        *("limit", "lock", "minus", "not", "offset", "on", "or", "outer", "overlaps", "revoke"),
        *("rollback", "rollup", "select", "serdeproperties", "tablesample", "then", "uncache"),
        *("union", "using", "values", "when", "where", "window", "with"),
    ]
)
"""Keywords of the tokenizer that Spark allows as names."""

_OPERATORS = frozenset(
    [
        *(TokenType.EQ, TokenType.NEQ, TokenType.LT, TokenType.GT, TokenType.LTE, TokenType.GTE),
        *(TokenType.NULLSAFE_EQ, TokenType.PLUS, TokenType.DASH, TokenType.STAR, TokenType.SLASH),
        *(TokenType.MOD, TokenType.DPIPE, TokenType.AMP, TokenType.PIPE, TokenType.CARET),
        *(TokenType.AND, TokenType.OR),
    ]
)
_BEFORE = _OPERATORS | {
    *(TokenType.SELECT, TokenType.COMMA, TokenType.L_PAREN, TokenType.NOT, TokenType.WHEN),
    *(TokenType.THEN, TokenType.ELSE, TokenType.CASE, TokenType.GROUP_BY, TokenType.ORDER_BY),
    *(TokenType.PARTITION_BY, TokenType.WHERE, TokenType.HAVING, TokenType.ON, TokenType.ALIAS),
    *(TokenType.FROM, TokenType.JOIN, TokenType.DISTINCT, TokenType.WITH, TokenType.L_BRACKET),
}
"""After these a name or a value must follow."""

_ENDS = frozenset(
    [
        *(TokenType.COMMA, TokenType.R_PAREN, TokenType.FROM, TokenType.WHERE),
        *(TokenType.GROUP_BY, TokenType.ORDER_BY, TokenType.SEMICOLON),
    ]
)
_AFTER = (_OPERATORS | _ENDS) - {TokenType.STAR} | {
    *(TokenType.ALIAS, TokenType.THEN, TokenType.ELSE, TokenType.END, TokenType.HAVING),
    *(TokenType.ASC, TokenType.DESC, TokenType.JOIN, TokenType.ON, TokenType.R_BRACKET),
    *(TokenType.WHEN, TokenType.DCOLON),
}
"""Before these a name or a value has ended."""
_VALUES = frozenset(
    {TokenType.VAR, TokenType.IDENTIFIER, TokenType.R_PAREN, TokenType.NUMBER, TokenType.STRING}
)


def tokens_of(sql: str, dialect: Dialect) -> list[Token]:
    """The tokens of a text: a literal is one token, `window(…)` a function."""
    found: list[Token] = []
    for token in dialect.tokenize(sql):
        before = found[-1] if found else None
        if before is None:
            found.append(token)
        elif before.token_type is TokenType.NUMBER and token.start == before.start:
            continue  # `1L` is read as 1 :: BIGINT, which is not in the text
        elif before.token_type is token.token_type is TokenType.STRING:
            found[-1] = _joined(before, token)  # 'it''s' is one string
        elif (
            before.token_type is TokenType.DOT
            and token.token_type is TokenType.NUMBER
            and token.start == before.end + 1
        ):
            found[-1] = _joined(before, token)
        else:
            if before.token_type is TokenType.WINDOW and token.token_type is TokenType.L_PAREN:
                before.token_type = TokenType.VAR
            found.append(token)
    for at in reversed(range(len(found))):
        token = found[at]
        if token.text.lower() in _WORDS and _is_name(found, at):
            token.token_type = TokenType.IDENTIFIER
    return found


def _joined(first: Token, second: Token) -> Token:
    text = first.text + second.text
    return Token(second.token_type, text, first.line, first.col, first.start, second.end)


def _is_name(tokens: Sequence[Token], at: int) -> bool:
    """Whether a keyword stands where only a name can stand."""
    kind = tokens[at].token_type
    before = tokens[at - 1].token_type if at else None
    after = tokens[at + 1].token_type if at + 1 < len(tokens) else TokenType.SEMICOLON
    if kind in (TokenType.VAR, TokenType.IDENTIFIER, TokenType.STRING):
        return False
    if TokenType.DOT in (before, after):
        return True
    if before in _VALUES:
        return after in _ENDS and kind is not TokenType.FROM
    if before not in _BEFORE or after not in _AFTER:
        return False
    if before is TokenType.WITH and kind in (TokenType.CUBE, TokenType.ROLLUP):
        return after is TokenType.ALIAS
    if kind is TokenType.CASE:
        return after is not TokenType.WHEN
    if kind is TokenType.ALL:
        return before is not TokenType.GROUP_BY
    if kind is TokenType.DISTINCT:
        return after is not TokenType.FROM or before is not TokenType.NOT
    return True
