"""Whether a text from someone who is not trusted is a query that only reads some tables.

What is not known to be harmless is refused: kinds of syntax, functions, and tables. The text that
runs is written from the tree that was checked, not the text that was given: what this parser and
Spark's read differently cannot get through.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from sqlglot import Token, TokenType, exp
from sqlglot.errors import TokenError
from sqlglot.parsers.spark import SparkParser

from dbt_streamsql.compiler.parsing.dialect import to_sql, tokens_of
from dbt_streamsql.compiler.parsing.harmless_functions import HARMLESS
from dbt_streamsql.compiler.parsing.names import table_uses
from dbt_streamsql.compiler.parsing.parse import parse, unreadable
from dbt_streamsql.errors import StreamSqlError

LONGEST = 20_000
"""Characters of a query."""
DEEPEST = 4
"""Brackets behind names of types, such as `date(`, inside one another."""

_SYNTAX = frozenset(
    [
        *("Add", "Alias", "Aliases", "And", "Anonymous", "Avg", "Between", "BitwiseAnd"),
        *("BitwiseNot", "BitwiseOr", "BitwiseXor", "Boolean", "Bracket", "CTE", "Case"),
        *("Cast", "Coalesce", "Column", "Count", "Cross", "Cube", "CurrentDate"),
        *("CurrentTimestamp", "DPipe", "DataType", "DataTypeParam", "Distinct", "Div", "Dot"),
        *("EQ", "Escape", "Except", "Exists", "Filter", "From", "GT", "GTE", "Group"),
        *("GroupingSets", "Having", "ILike", "Identifier", "If", "In", "IntDiv", "Intersect"),
        *("Interval", "Is", "Join", "LT", "LTE", "Lambda", "Lateral", "Like", "Limit"),
        *("Literal", "Max", "Min", "Mod", "Mul", "NEQ", "Neg", "Not", "Null", "NullSafeEQ"),
        *("NullSafeNEQ", "Offset", "Or", "Order", "Ordered", "Paren", "Pivot", "PivotAlias"),
        *("Plus", "Qualify", "RegexpLike", "Rollup", "Select", "Slice", "Sort", "Star", "Sub"),
        *("Subquery", "Sum", "Table", "TableAlias", "TableSample", "TryCast", "Tuple"),
        *("Union", "Values", "Var", "Where", "Window", "WindowSpec", "With", "WithinGroup"),
        *("Worded",),
    ]
)
"""The kinds of nodes that a query may have."""
_OF_THE_PROCESS = frozenset(
    [
        *("current_catalog", "current_database", "current_schema", "current_user"),
        *("session_user", "user"),
    ]
)
"""Functions that need no brackets; a column may have such a name."""
_OF_FILES = frozenset(["_file", "_metadata"])
"""Columns of every table with the paths of its files."""
_PLAIN = re.compile(r"[A-Za-z_]\w*")


def only_reads(sql: str, allowed: Collection[str], catalog: str) -> tuple[str, frozenset[str]]:
    """The text to run for a query, and the tables that it reads.

    `allowed` are the tables that it may read, by their full names. Errors: SQL_UNSUPPORTED,
    FUNCTION_INVALID, TABLE_MISSING, IDENTIFIER_INVALID.
    """
    if len(sql) > LONGEST:
        raise _refused("the query is too long", f"{len(sql)} characters", f"{LONGEST}")
    try:
        _check_depth(sql)
        tables, text = _checked(sql, allowed, catalog)
        # What runs is checked as well: a mistake in writing the tree opens no door.
        again, _ = _checked(text, allowed, catalog)
    except RecursionError:
        raise _refused("the query is nested too deeply", "", "fewer levels") from None
    if again != tables:
        raise _refused("this query cannot be used here", sql.strip()[:80], "SELECT")
    return text, tables


def _checked(sql: str, allowed: Collection[str], catalog: str) -> tuple[frozenset[str], str]:
    tree = _parsed(sql)
    _check_syntax(tree)
    tables = _check_tables(tree, allowed, catalog)
    return tables, to_sql(tree)


def _check_depth(sql: str) -> None:
    """The parser tries the name of a type both as a type and as a function: each level of brackets
    behind such a name doubles its work."""
    opened: list[bool] = []
    before: Token | None = None
    try:
        tokens = tokens_of(sql)
    except TokenError as error:
        raise _refused("the query cannot be read", str(error)[:200], "SELECT") from error
    for token in tokens:
        if token.token_type is TokenType.L_PAREN:
            opened.append(before is not None and before.token_type in SparkParser.TYPE_TOKENS)
            if sum(opened) > DEEPEST:
                raise _refused("names of types are nested too deeply", "", f"{DEEPEST} levels")
        elif token.token_type is TokenType.R_PAREN and opened:
            opened.pop()
        before = token


def _parsed(sql: str) -> exp.Query:
    try:
        return parse(sql)
    except StreamSqlError as error:
        if unreadable(error):
            raise _refused(
                "the query cannot be read", str(error.__cause__)[:200], "SELECT"
            ) from error
        raise _refused("this is not one query", sql.strip()[:80], "one SELECT") from error


def _check_syntax(tree: exp.Expr) -> None:
    # They only advise, and their words are not checked.
    for hint in list(tree.find_all(exp.Hint)):
        hint.pop()
    for node in tree.walk():
        if isinstance(node, exp.Anonymous):
            _check_call(node)
        elif type(node).__name__ not in _SYNTAX:
            raise _refused("this part of a query cannot be used here", to_sql(node)[:80], "SELECT")
        if isinstance(node, exp.Column):
            _check_column(node)
        if isinstance(node, exp.Identifier) and node.name.lower() in _OF_FILES:
            raise _refused("paths of files cannot be read here", node.name, "other columns")
        if isinstance(node, exp.Var) and _PLAIN.fullmatch(node.name) is None:
            raise _refused("this word cannot be used here", node.name[:80], "letters and digits")
        if isinstance(node, exp.CTE) and _PLAIN.fullmatch(node.alias) is None:
            raise _refused("a name in WITH must be a plain word", node.alias, "letters and digits")


def _check_column(column: exp.Column) -> None:
    name = column.name.lower()
    if name in _OF_THE_PROCESS and not column.table:
        raise _refused(
            "this may be a function that names the process",
            to_sql(column),
            "the column with the name of its table: t.user",
        )


def _check_call(call: exp.Anonymous) -> None:
    name = call.name.lower()
    parent = call.parent
    owned = (isinstance(parent, exp.Dot) and call.arg_key == "expression") or (
        isinstance(parent, exp.Table) and bool(parent.args.get("db"))
    )
    if owned or name not in HARMLESS:
        raise StreamSqlError(
            "FUNCTION_INVALID",
            "this function cannot be used here",
            given=to_sql(parent if owned and parent is not None else call)[:80],
            allowed="functions of Spark that depend on their arguments alone",
            hint="run the query with `streamsql query`",
        )


def _check_tables(tree: exp.Expr, allowed: Collection[str], catalog: str) -> frozenset[str]:
    found = set()
    for table, use in table_uses(tree, catalog):
        name = str(use.name)
        if use.fixed:
            raise _refused("a query cannot name a version", use.fixed, "tables without a version")
        if name not in allowed:
            raise _missing(name)
        found.add(name)
        # Only what was checked is resolved: a name in FROM has all its parts.
        table.set("catalog", exp.to_identifier(use.name.catalog, quoted=True))
        table.set("db", exp.to_identifier(use.name.schema, quoted=True))
        table.set("this", exp.to_identifier(use.name.table, quoted=True))
    for table in tree.find_all(exp.Table):
        if isinstance(table.this, exp.Identifier) and not table.args.get("db"):
            _check_cte(table)
        elif not isinstance(table.this, exp.Identifier | exp.Anonymous):
            raise _missing(to_sql(table)[:80])
    return frozenset(found)


def _check_cte(table: exp.Table) -> None:
    """A name of one part is that of a CTE before it, as Spark sees it: Spark would look for any
    other among tables and files."""
    name = table.name.lower()
    child: exp.Expr = table
    while (parent := child.parent) is not None:
        with_ = parent.args.get("with_")
        if isinstance(with_, exp.With) and with_ is not child:
            if name in (cte.alias.lower() for cte in with_.expressions):
                return
        elif isinstance(parent, exp.With):
            before = parent.expressions[: parent.expressions.index(child)]
            if parent.args.get("recursive"):
                before = [*before, child]
            if name in (cte.alias.lower() for cte in before):
                return
        child = parent
    raise _missing(table.name)


def _missing(name: str) -> StreamSqlError:
    return StreamSqlError(
        "TABLE_MISSING",
        "the barrier has no such table, or your token does not show it",
        given=name,
        allowed="catalog.schema.table, or schema.table, of the topology",
    )


def _refused(message: str, given: str, allowed: str) -> StreamSqlError:
    return StreamSqlError("SQL_UNSUPPORTED", message, given=given, allowed=allowed)
