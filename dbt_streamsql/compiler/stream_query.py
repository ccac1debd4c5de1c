"""The query of a streaming table: rows of one stream, each on its own."""

from __future__ import annotations

from dataclasses import dataclass, replace

from dbt_streamsql.compiler.compile import compile_view
from dbt_streamsql.compiler.parsing.names import replace_tables, table_uses
from dbt_streamsql.compiler.parsing.parse import parse as parsed
from dbt_streamsql.errors import Place, StreamSqlError
from dbt_streamsql.plan.algebra.catalog import Catalog, TableInfo
from dbt_streamsql.plan.algebra.schema import Column
from dbt_streamsql.plan.compiled import CompiledPlan, PlanMode
from dbt_streamsql.quoting import TableName, quote

_TIME = "streamsql_time_of_record"

STREAMING: PlanMode = "streaming"
"""The mode of a plan whose rows come from a stream."""


@dataclass(frozen=True)
class Upserts:
    """How records become upserts: the `key`, columns that are not stored, and the query with three
    more columns: a record's sequence, and whether it deletes one key or all. `whole`: the records
    contain all rows, and their sequence is not stored."""

    key: tuple[str, ...]
    leave_out: tuple[str, ...]
    text: str
    whole: bool = False


@dataclass
class OneStream:
    """A catalog whose only table is the stream."""

    known: Catalog
    stream: TableInfo
    default_catalog: str

    def table(self, name: TableName) -> TableInfo:
        assert str(name) == str(self.stream.name)
        return self.stream

    def schema(self, sql: str) -> tuple[Column, ...]:
        empty = ", ".join(
            f"CAST(NULL AS {c.type}) AS {quote(c.name)}" for c in self.stream.columns
        )
        text = f"(SELECT {empty} WHERE false)"
        return self.known.schema(replace_tables(sql, lambda _: text, self.default_catalog))

    def functions(self) -> frozenset[str]:
        return self.known.functions()

    def loses_overflow(self) -> bool:
        return self.known.loses_overflow()


def compile_stream(
    sql: str, stream: TableInfo, catalog: Catalog, *, table: str, upsert: Upserts | None = None
) -> CompiledPlan:
    """Compile the query of a streaming table; `upsert`: for a table with a key.

    Errors: SQL_UNSUPPORTED when it reads anything but the stream, once, or does more than
    select, compute and filter; SQL_INVALID, RESERVED_NAME, CONFIG_INVALID.
    """
    uses = [use.name for _, use in table_uses(parsed(sql, table), catalog.default_catalog, "")]
    others = sorted({str(name) for name in uses} - {str(stream.name)})
    if others or len(uses) != 1:
        raise _refused(
            table,
            f"reads {', '.join(others)}" if others else f"reads its stream {len(uses)} times",
        )
    alone = OneStream(catalog, stream, catalog.default_catalog)
    found = compile_view(sql, alone, table=table)
    if found.mode != "incremental":
        raise _refused(table, "; ".join(found.reasons))
    if found.strategy != "rows":
        raise _refused(table, found.headline)
    plan = replace(
        found,
        mode=STREAMING,
        strategy="append",
        tables=(),
        hidden=(),
        key=(),
        full_sql="",
        steps=(),
        operators=(),
    )
    return plan if upsert is None else _keyed(plan, upsert, alone)


def timed_columns(
    sql: str, event_time: str, stream: TableInfo, catalog: Catalog, *, table: str
) -> tuple[Column, ...]:
    """The columns of a streaming table's query, whose row time is `event_time`.

    Errors: those of `compile_stream`; CONFIG_INVALID when it is not a TIMESTAMP.
    """
    text = f"SELECT *, ({event_time}) AS {_TIME} FROM ({sql})"
    *columns, time = compile_stream(text, stream, catalog, table=table).columns
    if time.type not in ("timestamp", "timestamp_ntz"):
        raise StreamSqlError(
            "CONFIG_INVALID",
            f"`event_time` is a {time.type}, not a TIMESTAMP",
            given=event_time,
            allowed="a TIMESTAMP column of the query, or a TIMESTAMP expression over its columns",
            hint="`timestamp_millis(…)`, `to_timestamp(…)` or a CAST makes one",
            place=Place(table),
        )
    return tuple(columns)


def _keyed(plan: CompiledPlan, upsert: Upserts, catalog: Catalog) -> CompiledPlan:
    """The plan of a table whose rows are replaced and deleted by key."""
    *_, sequence, deleted, cleared = catalog.schema(upsert.text)
    known = {column.name: column for column in plan.columns}
    problems = [
        f"`{what}` names {name!r}, which the query does not return"
        for what, names in (("key", upsert.key), ("leave_out", upsert.leave_out))
        for name in names
        if name not in known
    ]
    problems += [
        f"`leave_out` names {name!r}, which is in the key"
        for name in upsert.leave_out
        if name in upsert.key
    ]
    problems += [
        f"`{name}` is a {column.type}, not a boolean"
        for name, column in (("delete_when", deleted), ("truncate_when", cleared))
        if column.type != "boolean"
    ]
    problems += [
        f"{what} is a {kind}, which cannot be ordered"
        for what, kind in (
            ("`sequence_by`", sequence.type),
            *((f"`key` {name}", known[name].type) for name in upsert.key if name in known),
        )
        if "map<" in kind or "variant" in kind
    ]
    if problems:
        raise StreamSqlError(
            "CONFIG_INVALID",
            "the model's config does not fit its query",
            given="; ".join(problems),
            allowed=", ".join(f"{column.name} {column.type}" for column in plan.columns),
            place=Place(plan.table),
        )
    columns = tuple(column for column in plan.columns if column.name not in upsert.leave_out)
    hidden = () if upsert.whole else (sequence,)
    return replace(plan, strategy="upsert", columns=columns, hidden=hidden, key=tuple(upsert.key))


def _refused(table: str, what: str) -> StreamSqlError:
    return StreamSqlError(
        "SQL_UNSUPPORTED",
        "the query of a streaming table must read one stream, row by row",
        given=what,
        allowed="a SELECT with expressions and WHERE over one source, named once",
        hint="join, group and order in a materialized view that reads this table",
        place=Place(table),
    )
