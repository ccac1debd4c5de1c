"""The query of a sink: rows of one maintained table, each on its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sqlglot import exp

from dbt_streamsql.compiler.binding.scalar import called
from dbt_streamsql.compiler.parsing.builtin_functions import GENERATORS
from dbt_streamsql.compiler.parsing.names import table_uses
from dbt_streamsql.compiler.parsing.parse import parse
from dbt_streamsql.compiler.stream_query import compile_stream
from dbt_streamsql.errors import Place, StreamSqlError
from dbt_streamsql.plan.algebra.catalog import Catalog, TableInfo
from dbt_streamsql.plan.algebra.schema import Column

_MANY = GENERATORS | {"window"}
_CLAUSES = ("laterals", "joins", "pivots")
"""Clauses that can turn one row into several, so that a table key is not a key of the sink."""


@dataclass(frozen=True)
class SinkQuery:
    """A query that only selects, computes and filters.

    `plain`: its columns that are columns of the table, by their name there; {} where that is
    unknown, or where one row of the table can become several.
    """

    sql: str
    columns: tuple[Column, ...]
    plain: Mapping[str, str]


def table_of(sql: str, name: str, catalog: str) -> str:
    """The one table that a sink's query reads. Error: SQL_UNSUPPORTED."""
    uses = [str(use.name) for _, use in table_uses(parse(sql, name), catalog, "")]
    if len(uses) != 1:
        found = f"reads {', '.join(uses)}" if uses else "reads no table"
        raise _refused(name, found)
    return uses[0]


def compile_sink(
    sql: str, table: TableInfo, catalog: Catalog, *, name: str, key: Iterable[str]
) -> SinkQuery:
    """Errors: SQL_UNSUPPORTED for more than selecting, computing and filtering; SQL_INVALID,
    RESERVED_NAME; CONFIG_INVALID for a key that the query does not return."""
    try:
        plan = compile_stream(sql, table, catalog, table=name)
    except StreamSqlError as error:
        if error.code != "SQL_UNSUPPORTED" or not error.given:
            raise
        raise _refused(name, error.given) from error
    columns = plan.columns
    types = {column.name: column.type for column in columns}
    problems = [f"{each!r} is not a column of the query" for each in key if each not in types]
    problems += [
        f"{each} is a {types[each]}, which cannot identify a row"
        for each in key
        if "<" in types.get(each, "") or types.get(each) == "variant"
    ]
    if problems:
        raise StreamSqlError(
            "CONFIG_INVALID",
            "invalid sink `key`",
            given="; ".join(problems),
            allowed=", ".join(f"{column.name} {column.type}" for column in columns),
            place=Place(name),
        )
    return SinkQuery(sql, columns, _plain(sql, name, table, columns))


def _plain(
    sql: str, name: str, table: TableInfo, columns: tuple[Column, ...]
) -> Mapping[str, str]:
    tree = parse(sql, name)
    if not isinstance(tree, exp.Select) or tree.args.get("with_"):
        return {}
    source = tree.args.get("from_")
    if source is None or not isinstance(source.this, exp.Table):
        return {}
    if any(called(call) in _MANY for call in tree.find_all(exp.Func)) or any(
        tree.args.get(clause) or source.this.args.get(clause) for clause in _CLAUSES
    ):
        return {}
    known = {column.name.lower(): column.name for column in table.columns}
    if len(tree.expressions) == 1 and tree.expressions[0].is_star:
        return {column.name: known[column.name.lower()] for column in columns}
    if len(tree.expressions) != len(columns):
        return {}
    found = {}
    for item, column in zip(tree.expressions, columns, strict=True):
        inner = item.this if isinstance(item, exp.Alias) else item
        if not isinstance(inner, exp.Column) or inner.args.get("db"):
            continue
        # The part before the dot may be a struct.
        own = inner.table.lower() in ("", source.this.alias_or_name.lower())
        if own and inner.name.lower() in known:
            found[column.name] = known[inner.name.lower()]
    return found


def _refused(name: str, what: str) -> StreamSqlError:
    return StreamSqlError(
        "SQL_UNSUPPORTED",
        "the query of a sink must read one maintained table, row by row",
        given=what,
        allowed="a SELECT with expressions and WHERE over one `ref`, named once",
        hint="put the query into a materialized view, and read that view in the sink",
        place=Place(name),
    )
