"""Where a value of a config enters a statement, and what kind of token it must stay."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.functional.injections.rendering import Renderer

TEXT, NAME, SQL = "text", "name", "SQL"


@dataclass(frozen=True)
class Sink:
    """`render` gives the statement for a value.

    `kind`: TEXT is one string token with the value; NAME is one back-ticked token with it; SQL
    is an expression of the user's own, which is printed as it is or refused.
    """

    name: str
    kind: str
    render: Callable[[Renderer, str], str]


def _description(r: Renderer, value: str) -> str:
    with r.described(value):
        return r.create_table(persist_docs={"relation": True})


def _view_column(r: Renderer, value: str) -> str:
    columns = {value: {"description": "benign"}}
    clause = r.macro("get_column_comment_sql", value, columns)
    return f"create or replace view {r.relation()} ({clause}) as select 1 as id"


def _columns(name: str, data_type: str = "int") -> dict[str, Any]:
    return {name: {"name": name, "data_type": data_type}}


def _subquery(r: Renderer, value: str) -> str:
    columns = r.context["model"]["columns"]
    before = dict(columns)
    columns.clear()
    columns.update(_columns(value))
    try:
        return r.macro("get_select_subquery", "select 1 as id")
    finally:
        columns.clear()
        columns.update(before)


def _arguments(r: Renderer, key: Any, predicate: str | None = None) -> dict[str, Any]:
    target = r.relation(identifier="target")
    return {
        "target_relation": target,
        "temp_relation": "changes",
        "dest_columns": r.adapter.get_columns_in_relation(target),
        "unique_key": key,
        "incremental_predicates": [predicate] if predicate is not None else None,
    }


def _merge(r: Renderer, key: Any, predicate: str | None = None, **config: Any) -> str:
    arguments = _arguments(r, key, predicate)
    return r.macro("streamsql__get_incremental_merge_sql", arguments, **config)


def _predicate(r: Renderer, value: str) -> str:
    r.adapter.streamsql_expression(value, "incremental_predicates")
    return _merge(r, "id", value)


def _replaced(r: Renderer, value: str) -> str:
    arguments = _arguments(r, ["id", value])
    text = r.macro("streamsql__get_incremental_delete_insert_sql", arguments)
    (delete, _) = r.adapter.streamsql_statements(text)
    return delete


def _accepted(r: Renderer, value: str) -> str:
    return r.macro("test_accepted_values", r.relation(), "id", [value, "benign"])


def _fixture(r: Renderer, value: str) -> str:
    row = r.context["format_row"]({"id": value}, {"id": "string"})
    return f"select {row['id']} as id"


def _named(part: str) -> Callable[[Renderer, str], str]:
    def render(r: Renderer, value: str) -> str:
        relation = r.relation(**{part: value})
        r.adapter.streamsql_check_name(relation)
        return r.macro("create_table_as", False, relation, "select 1 as id")

    return render


def _view_description(r: Renderer, value: str) -> str:
    with r.described(value):
        comment = r.macro("comment_clause", persist_docs={"relation": True})
        return f"create or replace view {r.relation()} {comment} as select 1 as id"


def _column_description(r: Renderer, value: str) -> str:
    columns = {"id": {"description": value}}
    # An empty description is none: there is nothing to comment with.
    clause = r.macro("get_column_comment_sql", "id", columns) if value else "`id` comment ''"
    return f"create or replace view {r.relation()} ({clause}) as select 1 as id"


def _spec_comment(r: Renderer, value: str) -> str:
    with r.described(value):
        return r.spec(persist_docs={"relation": True})


SINKS = [
    Sink("table comment", TEXT, _spec_comment),
    Sink("table property", TEXT, lambda r, v: r.spec(tblproperties={"a": v})),
    Sink("table option", TEXT, lambda r, v: r.spec(options={"a": v})),
    Sink("table property key", TEXT, lambda r, v: r.spec(tblproperties={v: "a"})),
    Sink("table option key", TEXT, lambda r, v: r.spec(options={v: "a"})),
    Sink("table partition", NAME, lambda r, v: r.spec(partition_by=v)),
    Sink("table clusters", NAME, lambda r, v: r.spec(clustered_by=["id", v], buckets=4)),
    Sink("description", TEXT, _description),
    Sink("description of a view", TEXT, _view_description),
    Sink("column description", TEXT, _column_description),
    Sink("tblproperties value", TEXT, lambda r, v: r.create_table(tblproperties={"a": v})),
    Sink("tblproperties key", TEXT, lambda r, v: r.create_table(tblproperties={v: "a"})),
    Sink("options value", TEXT, lambda r, v: r.create_table(options={"a": v})),
    Sink("options key", TEXT, lambda r, v: r.create_table(options={v: "a"})),
    Sink("accepted_values", TEXT, _accepted),
    Sink("unit test cell", TEXT, _fixture),
    Sink("argument of a hook", TEXT, lambda r, v: f"select {r.adapter.streamsql_literal(v)} as a"),
    Sink("alias", NAME, _named("identifier")),
    Sink("schema", NAME, _named("schema")),
    Sink("file_format", NAME, lambda r, v: r.create_table(file_format=v)),
    Sink("partition_by", NAME, lambda r, v: r.create_table(partition_by=v)),
    Sink("partition_by list", NAME, lambda r, v: r.create_table(partition_by=["id", v])),
    Sink("clustered_by", NAME, lambda r, v: r.create_table(clustered_by=[v], buckets=4)),
    Sink("unique_key", NAME, lambda r, v: _merge(r, ["id", v])),
    Sink("merge_update_columns", NAME, lambda r, v: _merge(r, "id", merge_update_columns=[v])),
    Sink("unique_key of delete+insert", NAME, _replaced),
    Sink("contract column", NAME, lambda r, v: r.macro("get_empty_schema_sql", _columns(v))),
    Sink("contract column in a select", NAME, _subquery),
    Sink("column of a view", NAME, _view_column),
    Sink("data_type", SQL, lambda r, v: r.macro("get_empty_schema_sql", _columns("id", v))),
    Sink("incremental_predicates", SQL, _predicate),
]


def python_config(r: Renderer, value: str) -> dict[str, Any]:
    """The config that a python model sees, read back from its compiled text."""
    keys = {"config_keys_used": ["k"], "config_keys_defaults": [None]}
    text = r.macro("build_config_dict", {"config": {**keys, "k": value}})
    (config, _) = ast.parse(text).body
    return ast.literal_eval(config.value)
