"""The branches of a wide table from a text of INSERT statements.

`BEGIN STATEMENT SET; INSERT INTO sink (pk, f1) SELECT …; …; END;` as in FLIP-506, or only the
statements. Column lists may contain fields (`b.b2`), which no SQL parser reads in an INSERT, so
the head of a statement is read by its tokens; its query stays the user's own text.
"""

from __future__ import annotations

from sqlglot import Token, TokenType
from sqlglot.errors import SqlglotError

from dbt_streamsql.compiler.parsing.dialect import tokens_of
from dbt_streamsql.compiler.parsing.names import replace_tables, table_uses
from dbt_streamsql.compiler.parsing.parse import parse, statements
from dbt_streamsql.compiler.wide.branches import Branch
from dbt_streamsql.errors import Place, StreamSqlError
from dbt_streamsql.quoting import TableName

_FORM = "INSERT INTO the model (columns) SELECT …; one for each branch"


def branches_of(text: str, table: TableName, place: Place) -> tuple[Branch, ...]:
    """The branches that write `table`; a name without a catalog or schema is in the same schema.

    A branch is named after the first table that it reads. Error: PARTIAL_UPDATE_INVALID.
    """
    found: list[Branch] = []
    for statement in statements(text):
        words = statement.upper().split()
        if words in (["BEGIN", "STATEMENT", "SET"], ["BEGIN"], ["END"]):
            continue
        found.append(_branch(statement, table, place, {branch.name for branch in found}))
    return tuple(found)


def _branch(statement: str, table: TableName, place: Place, taken: set[str]) -> Branch:
    try:
        tokens = tokens_of(statement)
    except SqlglotError as error:
        raise _refused(statement, "it cannot be read", place) from error
    at = 0

    def word(*kinds: TokenType) -> bool:
        return at < len(tokens) and tokens[at].token_type in kinds

    if not word(TokenType.INSERT):
        raise _refused(statement, "it is not an INSERT", place)
    at += 1
    if not word(TokenType.INTO):
        raise _refused(statement, "it is not an INSERT INTO", place)
    at += 1
    if word(TokenType.TABLE):
        at += 1
    start = at
    while at < len(tokens) and tokens[at].token_type is not TokenType.L_PAREN:
        at += 1
    if at == len(tokens) or at == start:
        raise _refused(statement, "it lists no columns", place)
    _check_target(statement[tokens[start].start : tokens[at].start].strip(), table, place)
    end = at
    while end < len(tokens) and tokens[end].token_type is not TokenType.R_PAREN:
        end += 1
    if end + 1 >= len(tokens):
        raise _refused(statement, "it has no query", place)
    columns = tuple(_column(part) for part in _parts(tokens[at + 1 : end]))
    query = statement[tokens[end + 1].start :]
    sql = replace_tables(query, lambda name: name.sql, table.catalog, table.schema)
    return Branch(_named(sql, taken), sql, columns)


def _parts(tokens: list[Token]) -> list[list[Token]]:
    found: list[list[Token]] = [[]]
    for token in tokens:
        if token.token_type is TokenType.COMMA:
            found.append([])
        else:
            found[-1].append(token)
    return found


def _column(tokens: list[Token]) -> str:
    return "".join(token.text for token in tokens)


def _check_target(text: str, table: TableName, place: Place) -> None:
    try:
        named = TableName.parse(text, table.catalog, table.schema)
    except StreamSqlError as error:
        raise _refused(text, "its target is not a table", place) from error
    if str(named).lower() != str(table).lower():
        raise StreamSqlError(
            "PARTIAL_UPDATE_INVALID",
            "a branch writes a different table",
            given=str(named),
            allowed=str(table),
            hint="write {{ this }}, or the name of the model",
            place=place,
        )


def _named(sql: str, taken: set[str]) -> str:
    """A name for the branch: the first table that it reads."""
    uses = table_uses(parse(sql), incomplete_ok=True)
    first = uses[0][1].name.table if uses else "branch"
    base = "".join(c if c.isalnum() or c == "_" else "_" for c in first)
    name, number = base, 2
    while name in taken:
        name, number = f"{base}_{number}", number + 1
    return name


def _refused(statement: str, why: str, place: Place) -> StreamSqlError:
    return StreamSqlError(
        "PARTIAL_UPDATE_INVALID",
        f"a statement of a wide table is not valid: {why}",
        given=" ".join(statement.split())[:120],
        allowed=_FORM,
        place=place,
    )
