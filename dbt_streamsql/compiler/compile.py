"""SQL in, compiled plan out: the passes in order."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, replace
from importlib.metadata import version as version_of
from typing import Any

from dbt_streamsql.__version__ import version
from dbt_streamsql.compiler.bind import Bound, Opened, bind, open_views
from dbt_streamsql.compiler.build import build
from dbt_streamsql.compiler.emit import Emitter
from dbt_streamsql.compiler.incrementalize import incrementalize
from dbt_streamsql.compiler.prune import prune
from dbt_streamsql.compiler.reasons import Reason, Unsupported
from dbt_streamsql.compiler.render import render
from dbt_streamsql.compiler.rules.view import View, top
from dbt_streamsql.compiler.scalar import is_volatile
from dbt_streamsql.errors import Place, StreamSqlError
from dbt_streamsql.plan.catalog import Catalog
from dbt_streamsql.plan.compiled import PLAN_VERSION, CompiledPlan
from dbt_streamsql.plan.relational import Node, tables
from dbt_streamsql.plan.schema import HIDDEN_PREFIX, WEIGHT, Column
from dbt_streamsql.quoting import TableName

MODES = ("auto", "incremental", "incremental_strict", "full")
"""auto: incremental where possible. incremental: the same, but a full refresh is logged as a
warning. incremental_strict: a query that cannot be incremental is refused. full: always full."""


def compile_view(
    sql: str, catalog: Catalog, *, table: str = "", refresh_mode: str = "auto", model: str = ""
) -> CompiledPlan:
    """Compile one view.

    Errors: SQL_UNSUPPORTED, SQL_INVALID, TABLE_MISSING, RESERVED_NAME, CYCLE (the view reads
    itself), INCREMENTAL_IMPOSSIBLE (strict mode), CONFIG_INVALID (unknown mode).
    """
    if refresh_mode not in MODES:
        raise StreamSqlError(
            "CONFIG_INVALID",
            "unknown refresh_mode",
            given=repr(refresh_mode),
            allowed=", ".join(MODES),
            place=Place(model or table),
        )
    try:
        opened = open_views(sql, catalog, model=model or table)
        columns = catalog.schema(sql)
    except StreamSqlError as error:
        raise error.at(Place(model or table)) from error
    inputs = opened.tables
    versioned = tuple(name for name, info in inputs.items() if info.versioned)
    _check_columns(columns, model or table)
    if table and table.lower() in (name.lower() for name in inputs):
        raise StreamSqlError("CYCLE", f"{table} reads itself", place=Place(model or table))
    plan = CompiledPlan(
        sql=sql,
        mode="full",
        strategy="",
        reasons=(),
        tables=versioned,
        columns=columns,
        hidden=(),
        key=(),
        full_sql="",
        steps=(),
        tree={},
        fingerprint=_fingerprint(opened, sql, columns, refresh_mode),
        volatile=len(versioned) < len(inputs) or is_volatile(opened.tree, catalog.functions()),
        table=table,
    )
    if refresh_mode == "full":
        return replace(plan, reasons=("refresh_mode is full",))
    try:
        return _incremental(plan, bind(opened), catalog)
    except StreamSqlError as error:
        if error.code != "SQL_INVALID":
            raise
        # Spark accepts the user's text, so this is our rewriting of it that went wrong.
        why = f"the rewritten query is not valid: {error.message}"
        stop = Unsupported(Reason("query", why))
    except Unsupported as found:
        stop = found
    if refresh_mode == "incremental_strict":
        raise StreamSqlError(
            "INCREMENTAL_IMPOSSIBLE",
            f"the view cannot be maintained from changes: {stop.reason}",
            allowed="docs/materialized_view.md lists what can",
            hint=stop.reason.rewrite or "set refresh_mode to auto",
            place=Place(model or table, stop.reason.line, stop.reason.column),
        )
    return replace(plan, reasons=(str(stop.reason),))


def _incremental(plan: CompiledPlan, bound: Bound, catalog: Catalog) -> CompiledPlan:
    root = prune(build(bound, catalog))
    emitter = Emitter(root)
    view = incrementalize(View(root, plan.columns), _key_types(root, catalog), emitter)
    full_sql, hidden = "", tuple[Column, ...]()
    if view.full is not None:
        order = tables(root)
        full_sql = render(view.full, lambda name: f"{{t{order.index(name)}}}")
        hidden = _hidden(view.full, catalog)
    return replace(
        plan,
        mode="incremental",
        strategy=view.strategy,
        tables=tables(root),
        hidden=hidden,
        key=view.key,
        full_sql=full_sql,
        steps=emitter.finished(),
        tree=_tree(root),
    )


def _key_types(root: Node, catalog: Catalog) -> tuple[Column, ...]:
    found = top(root)
    if found is None or not found[0].keys:
        return ()
    plain = render(found[0], lambda name: TableName.parse(name).sql)
    types = {column.name: column for column in catalog.schema(_unescape(plain))}
    return tuple(types[key] for key in found[0].keys)


def _hidden(full: Node, catalog: Catalog) -> tuple[Column, ...]:
    plain = render(full, lambda name: TableName.parse(name).sql)
    return tuple(
        column
        for column in catalog.schema(_unescape(plain))
        if column.name.startswith(HIDDEN_PREFIX)
    )


def _unescape(template: str) -> str:
    return template.replace("{{", "{").replace("}}", "}")


def _check_columns(columns: tuple[Column, ...], model: str) -> None:
    seen: set[str] = set()
    for column in columns:
        lower = column.name.lower()
        if lower == WEIGHT or lower.startswith(HIDDEN_PREFIX):
            raise StreamSqlError(
                "RESERVED_NAME",
                f"column {column.name} is reserved",
                allowed=f"any name but {WEIGHT} and {HIDDEN_PREFIX}…",
                hint="give the column an alias",
                place=Place(model),
            )
        if lower in seen:
            raise StreamSqlError(
                "SQL_INVALID",
                f"two columns are named {column.name}",
                hint="give one of them an alias",
                place=Place(model),
            )
        seen.add(lower)


def _fingerprint(opened: Opened, sql: str, columns: tuple[Column, ...], refresh_mode: str) -> str:
    """A hash of everything that the meaning of a plan depends on."""
    parts = {
        "sql": sql,
        "inputs": {n: [asdict(c) for c in info.columns] for n, info in opened.tables.items()},
        "views": opened.views,
        "columns": [asdict(column) for column in columns],
        "refresh_mode": refresh_mode,
        "versions": [version, PLAN_VERSION, version_of("sqlglot")],
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _tree(node: Any) -> Any:
    """The relational tree as JSON data, for people and tools."""
    if hasattr(node, "__dataclass_fields__"):
        fields = {name: _tree(getattr(node, name)) for name in node.__dataclass_fields__}
        return {"node": type(node).__name__, **fields}
    return [_tree(item) for item in node] if isinstance(node, tuple) else node
