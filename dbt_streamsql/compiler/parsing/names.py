"""Where a text names tables, and the text with those tables replaced."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sqlglot import Token, TokenType, exp
from sqlglot.errors import SqlglotError

from dbt_streamsql.compiler.parsing.dialect import to_sql, tokens_of
from dbt_streamsql.compiler.parsing.parse import WRITERS, parse_reading, unreadable
from dbt_streamsql.compiler.parsing.pipes import BARE
from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.quoting import TableName, quote

_WORD = re.compile(r"\w+")
_BEFORE = frozenset(
    [
        TokenType.FROM,
        TokenType.JOIN,
        TokenType.USING,
        TokenType.COMMA,
        TokenType.L_PAREN,
        TokenType.TABLE,
    ]
)
"""Tokens before the name of a table, in a text that has no tree."""
_BEFORE_QUERY = frozenset(
    [TokenType.L_PAREN, TokenType.ALIAS, TokenType.UNION, TokenType.ALL, TokenType.EXCEPT]
)
_VERSIONS = frozenset(["VERSION", "TIMESTAMP", "SYSTEM_VERSION", "SYSTEM_TIME"])
_ALIASES = frozenset([TokenType.ALIAS, TokenType.IDENTIFIER, TokenType.VAR])


@dataclass(frozen=True)
class TableUse:
    """One place where a text names a table: offsets of the name, and whether an alias follows.

    `fixed`: the version or part that the text itself names (`VERSION AS OF 5`, `snapshots`).
    `bare`: it stands alone as `TABLE name`, which is a query.
    """

    name: TableName
    start: int
    end: int
    aliased: bool
    fixed: str = ""
    bare: bool = False


def table_uses(
    tree: exp.Expr, catalog: str = "", schema: str = "", *, incomplete_ok: bool = False
) -> list[tuple[exp.Table, TableUse]]:
    """Every base table (not a CTE) that the tree names, in order of appearance in the text.

    A name that lacks a part without a default is IDENTIFIER_INVALID, or is skipped if
    `incomplete_ok` (it may be a temporary view).
    """
    uses: list[tuple[exp.Table, TableUse]] = []
    for table in tree.find_all(exp.Table):
        parts = table.parts
        if not parts or not all(isinstance(part, exp.Identifier) for part in parts):
            continue
        if len(parts) == 1 and parts[0].name.lower() in _visible_ctes(table):
            continue
        whole, inside = parts[:3], parts[3:]
        defaults = [catalog, schema][: 3 - len(whole)]
        if incomplete_ok and not all(defaults):
            continue
        name = TableName.parse(".".join(quote(part.name) for part in whole), catalog, schema)
        offsets = [part.meta for part in parts if "start" in part.meta]
        bare = BARE in table.meta
        start = min((meta["start"] for meta in offsets), default=-1)
        start = table.meta[BARE] if bare else start
        end = max((meta["end"] for meta in offsets), default=-1)
        version = table.args.get("version")
        fixed = ".".join(part.name for part in inside) or (to_sql(version) if version else "")
        uses.append((table, TableUse(name, start, end, bool(table.alias), fixed, bare)))
    return sorted(uses, key=lambda use: use[1].start)


def written_by(sql: str, catalog: str = "") -> set[TableName]:
    """The tables that a statement writes, as far as the parser can read it."""
    try:
        found = table_uses(parse_reading(sql), catalog, incomplete_ok=True)
    except StreamSqlError:
        return set()
    return {use.name for table, use in found if _is_written(table)}


def _is_written(table: exp.Table) -> bool:
    """Whether the table is the target of a statement, which may list columns after it."""
    place: exp.Expr = table.parent if isinstance(table.parent, exp.Schema) else table
    return isinstance(place.parent, WRITERS) and place.arg_key == "this"


def _visible_ctes(node: exp.Expr) -> set[str]:
    names: set[str] = set()
    walker: exp.Expr | None = node
    while walker is not None:
        with_ = walker.args.get("with_")
        if isinstance(with_, exp.With):
            names |= {cte.alias.lower() for cte in with_.expressions}
        walker = walker.parent
    return names


def uses_without_tree(sql: str, catalog: str = "", schema: str = "") -> list[TableUse]:
    """The names in a text that the parser cannot read which may be table names.

    Names with one part are left out: they may be CTEs. A text with an unterminated string or
    comment has none: Spark refuses it.
    """
    uses: list[TableUse] = []
    try:
        tokens = tokens_of(sql)
    except SqlglotError:
        return uses
    kinds = [token.token_type for token in tokens] + [None]
    for at, token in enumerate(tokens):
        before = kinds[at - 1] if at else None
        if before not in _BEFORE or not _is_name(token):
            continue
        last = at
        while kinds[last + 1] is TokenType.DOT and any(map(_is_name, tokens[last + 2 : last + 3])):
            last += 2
        parts = [part.text for part in tokens[at : last + 1 : 2]]
        defaults = [catalog, schema][: 3 - len(parts)]
        goes_on = kinds[last + 1] in (TokenType.L_PAREN, TokenType.DOT)
        if len(parts) not in (2, 3) or not all(defaults) or goes_on:
            continue
        name = TableName.parse(".".join(map(quote, parts)), catalog, schema)
        bare = before is TokenType.TABLE
        if bare and at > 1 and kinds[at - 2] not in _BEFORE_QUERY:
            continue  # DROP TABLE and the like
        start = tokens[at - 1].start if bare else token.start
        after = _sampled(tokens, last)
        fixed = "AS OF" if _names_version(tokens[last + 1 :]) else ""
        aliased = kinds[after + 1] in _ALIASES
        uses.append(TableUse(name, start, tokens[last].end, aliased, fixed, bare))
    return uses


def _is_name(token: Token) -> bool:
    if token.token_type in (TokenType.STRING, TokenType.NUMBER):
        return False
    return token.token_type is TokenType.IDENTIFIER or _WORD.fullmatch(token.text) is not None


def _sampled(tokens: Sequence[Token], at: int) -> int:
    """The last token of `TABLESAMPLE (…) REPEATABLE (…)` after the token `at`, or `at` itself."""
    for word in ("TABLESAMPLE", "REPEATABLE"):
        if [token.text.upper() for token in tokens[at + 1 : at + 3]] == [word, "("]:
            depth, at = 1, at + 2
            while depth and at + 1 < len(tokens):
                at += 1
                kind = tokens[at].token_type
                depth += (kind is TokenType.L_PAREN) - (kind is TokenType.R_PAREN)
    return at


def _names_version(tokens: Sequence[Token]) -> bool:
    """Whether the tokens after a name begin with `[FOR] VERSION AS OF` or the like."""
    words = [token.text.upper() for token in tokens[:4]]
    words = words[1:] if words[:1] == ["FOR"] else words
    return words[:1] != [] and words[0] in _VERSIONS and words[1:3] == ["AS", "OF"]


def replace_tables(
    sql: str, replacement: Callable[[TableName], str | None], catalog: str = "", schema: str = ""
) -> str:
    """The user's own text with some table names replaced; nothing else changes.

    `replacement` gives the SQL that replaces a table, or None to keep it. An un-aliased use
    gets the table's last name part as its alias, so that `orders.id` still resolves. A use that
    names its own version stays unchanged, and so does the table that an INSERT or the like writes.
    """
    try:
        found = table_uses(parse_reading(sql), catalog, schema, incomplete_ok=True)
        written = {use.name for table, use in found if _is_written(table)}
        uses = [use for _, use in found if use.name not in written]
    except StreamSqlError as error:
        if not unreadable(error):
            raise
        # Spark may read what the parser cannot.
        uses = uses_without_tree(sql, catalog, schema)
    text, tokens = sql, tokens_of(sql) if "TABLESAMPLE" in sql.upper() else []
    places = {token.end: place for place, token in enumerate(tokens)}
    for use in reversed(uses):
        new = None if use.fixed else replacement(use.name)
        if new is None:
            continue
        if use.start < 0:
            raise StreamSqlError(
                "INTERNAL", "a table name without a position", given=str(use.name)
            )
        end = use.end + 1
        alias_at = tokens[_sampled(tokens, places[use.end])].end + 1 if tokens else end
        alias = "" if use.aliased else f" AS {quote(use.name.table)}"
        new = f"SELECT * FROM {new}" if use.bare else new
        text = text[: use.start] + new + text[end:alias_at] + alias + text[alias_at:]
    return text
