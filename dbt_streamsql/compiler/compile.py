"""SQL in, compiled plan out: the passes in order."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

from dbt_streamsql.__version__ import version
from dbt_streamsql.compiler.binding.aggregate_calls import UNSTABLE
from dbt_streamsql.compiler.binding.bind import Opened, bind, open_views
from dbt_streamsql.compiler.binding.scalar import is_volatile
from dbt_streamsql.compiler.codegen.emitter import Emitter
from dbt_streamsql.compiler.codegen.render_sql import plain, render
from dbt_streamsql.compiler.compiler_version import parser_version
from dbt_streamsql.compiler.explain import describe
from dbt_streamsql.compiler.lowering.builder import Built, build
from dbt_streamsql.compiler.lowering.schemas import Remembering, Schemas
from dbt_streamsql.compiler.lowering.view import View, top, under_names
from dbt_streamsql.compiler.parsing.depth import deeply
from dbt_streamsql.compiler.parsing.unsupported import Reason, Unsupported
from dbt_streamsql.compiler.passes.merge_projections import merge
from dbt_streamsql.compiler.passes.one_zero import one_zero
from dbt_streamsql.compiler.passes.prune_columns import prune
from dbt_streamsql.compiler.passes.semi_join_reduction import reduced
from dbt_streamsql.compiler.rules.incrementalize import incrementalize
from dbt_streamsql.compiler.state.stored_parts import cut, parts_of, with_stored
from dbt_streamsql.compiler.state.ttl import still_forgetting, with_ttls
from dbt_streamsql.compiler.wide.wide_query import build_wide, wide_in
from dbt_streamsql.errors import Place, StreamSqlError
from dbt_streamsql.plan.algebra.catalog import Catalog, TableInfo
from dbt_streamsql.plan.algebra.expression import hole
from dbt_streamsql.plan.algebra.relational import (
    CLOCK,
    Aggregate,
    Node,
    keys_of,
    scans,
    tables,
    walk,
)
from dbt_streamsql.plan.algebra.schema import HIDDEN_PREFIX, WEIGHT, Column
from dbt_streamsql.plan.compiled import PLAN_VERSION, REFRESH_MODES, CompiledPlan
from dbt_streamsql.plan.definition.stored_part import PlaceParts, StoredPart, nowhere
from dbt_streamsql.plan.definition.table_key import TableKey
from dbt_streamsql.plan.state import StateTtl
from dbt_streamsql.plan.tree_json import node_of, tree_of
from dbt_streamsql.quoting import TableName

_FILE_OF_ROW = "_metadata"
"""Spark's hidden column of file tables, which gives the source file of a row."""


@dataclass(frozen=True)
class _Reading:
    """How inputs are read: which parts of the query are stored, and where; and the declared keys
    by which less is read of them."""

    place: PlaceParts
    keys: Collection[TableKey]


@dataclass(frozen=True)
class _Forgets:
    """How long operators keep state, and the tree of the plan whose expired rows stay expired."""

    ttl: StateTtl | None
    before: Mapping[str, Any] | None

    @cached_property
    def tree(self) -> Node | None:
        """The tree, where there is one: a plan that is refreshed in full has none."""
        return node_of(self.before) if self.before else None

    @property
    def rows_expire(self) -> bool:
        """Whether rows expire, or have expired."""
        before = scans(self.tree) if self.tree is not None else ()
        return self.ttl is not None or any(scan.ttl for scan in before)


def compile_view(
    sql: str,
    catalog: Catalog,
    *,
    table: str = "",
    refresh_mode: str = "auto",
    model: str = "",
    state_ttl: StateTtl | None = None,
    before: Mapping[str, Any] | None = None,
    place: PlaceParts = nowhere,
    keys: Collection[TableKey] = (),
) -> CompiledPlan:
    """Compile one view; `state_ttl` says how long its operators keep state (None: forever).

    `before`: the tree of the plan that produced the stored rows, whose expired rows stay expired.
    `place` says which parts of the query are stored, and where; `keys`: the declared keys of its
    inputs.

    Errors: SQL_UNSUPPORTED, SQL_INVALID, TABLE_MISSING, RESERVED_NAME, CYCLE (the view reads
    itself), INCREMENTAL_IMPOSSIBLE (strict mode), CONFIG_INVALID (unknown mode),
    STATE_TTL_INVALID.
    """
    if refresh_mode not in REFRESH_MODES:
        raise StreamSqlError(
            "CONFIG_INVALID",
            "unknown refresh_mode",
            given=repr(refresh_mode),
            allowed=", ".join(REFRESH_MODES),
            place=Place(model or table),
        )
    known = Remembering(catalog)
    forgets = _Forgets(state_ttl, before)
    reading = _Reading(place, keys)
    return deeply(lambda: _compiled(sql, known, table, refresh_mode, model, forgets, reading))


def _compiled(
    sql: str,
    catalog: Catalog,
    table: str,
    refresh_mode: str,
    model: str,
    forgets: _Forgets,
    reading: _Reading,
) -> CompiledPlan:
    try:
        opened = open_views(sql, catalog, model=model or table)
        columns = _columns(sql, opened, catalog)
    except StreamSqlError as error:
        raise error.at(Place(model or table)) from error
    opened = _without_versions(opened, sql)
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
        fingerprint=_fingerprint(opened, [sql, opened.views], columns, refresh_mode),
        volatile=opened.is_volatile or is_volatile(opened.tree, catalog.functions()),
        table=table,
        unversioned=tuple(name for name, info in inputs.items() if not info.versioned),
    )
    if refresh_mode == "full":
        plan = replace(plan, reasons=("refresh_mode is full",))
        if forgets.ttl is not None:
            raise _stateless(plan, Place(model or table))
        return plan
    try:
        built = _built(opened, columns, catalog)
        made = _incremental(plan, opened, built, catalog, forgets, reading)
        # A different text with the same meaning needs no new rows.
        meaning = [made.tree, made.full_sql]
        return replace(made, fingerprint=_fingerprint(opened, meaning, columns, refresh_mode))
    except StreamSqlError as error:
        if error.code != "SQL_INVALID":
            raise
        # Spark accepts the user's text, so our rewriting of it is wrong.
        why = f"the rewritten query is not valid: {error.message}"
        reason = Reason("query", why)
    except Unsupported as found:
        reason = found.reason
    spot = (0, 0) if reason.view else (reason.line, reason.column)
    place = Place(model or table, *spot)
    if refresh_mode == "incremental_strict":
        raise StreamSqlError(
            "INCREMENTAL_IMPOSSIBLE",
            f"the view cannot be maintained from changes: {reason}",
            allowed="docs/materialized_view.md lists what can be maintained",
            hint=reason.rewrite or "set refresh_mode to auto",
            place=place,
        )
    plan = replace(plan, reasons=(str(reason),))
    if forgets.ttl is not None:
        raise _stateless(plan, place)
    return plan


def _without_versions(opened: Opened, sql: str) -> Opened:
    """The tables, unversioned where they lack a column that some text seems to name."""
    texts = (sql, *opened.views.values())
    if not any(_FILE_OF_ROW in text.lower() for text in texts):
        return opened
    why = f"the query reads {_FILE_OF_ROW}, which the table's versions do not have"
    return replace(
        opened,
        tables={
            name: replace(info, versioned=False, unversioned=why) if info.bare else info
            for name, info in opened.tables.items()
        },
    )


def _columns(sql: str, opened: Opened, catalog: Catalog) -> tuple[Column, ...]:
    if opened.unread is None:
        return catalog.schema(sql)
    try:
        # In a sub-query: otherwise looking up the columns of a statement would run it.
        return catalog.schema(f"SELECT * FROM ({sql}\n)")
    except StreamSqlError as error:
        raise opened.unread from error


def _stateless(plan: CompiledPlan, place: Place) -> StreamSqlError:
    return StreamSqlError(
        "STATE_TTL_INVALID",
        f"a view that is refreshed in full has no state to forget: {plan.reasons[0]}",
        given="state_ttl",
        hint="leave state_ttl out, or write the query so that it is maintained from changes",
        place=place,
    )


def _built(opened: Opened, columns: tuple[Column, ...], catalog: Catalog) -> Built:
    if opened.unread is not None:
        raise Unsupported(Reason("query", opened.unread.message))
    if opened.fixed:
        why = "changes to a named version or part of a table are not followed"
        raise Unsupported(Reason(opened.fixed[0], why, "name only the table"))
    wide = wide_in(opened.tree)
    if wide is not None:
        return build_wide(wide, opened, columns, catalog)
    return build(bind(opened, catalog), catalog)


def _incremental(
    plan: CompiledPlan,
    opened: Opened,
    built: Built,
    catalog: Catalog,
    forgets: _Forgets,
    reading: _Reading,
) -> CompiledPlan:
    _check_names(built.root, plan.columns)
    schemas = Schemas(catalog, opened.tables)
    read = prune(merge(built.root))
    root = one_zero(read, schemas)
    chosen = built.chosen or root != read
    written = root
    if not forgets.rows_expire:
        root = prune(merge(reduced(root, schemas)))
    if forgets.ttl is not None:
        root = with_ttls(root, forgets.ttl, Place(plan.table))
    if forgets.tree is not None:
        root = still_forgetting(root, forgets.tree)
    _refuse_unstable(root)
    # Files of inputs without versions are looked at for the view as a whole.
    parts = () if plan.unversioned else _placed(parts_of(root, reading.keys), reading.place)
    whole, root = root, cut(root, parts)
    if root is not whole:
        schemas = Schemas(catalog, {**opened.tables, **_tables_of(parts, catalog)})
    emitter = Emitter(root, keys=reading.keys, tables=schemas.tables)
    keys = _key_types(root, schemas)
    view = incrementalize(View(root, plan.columns), keys, emitter)
    inputs = tables(root)
    canonical = chosen or CLOCK in inputs or root is not whole
    full_sql = ""
    full = view.full
    if full is None and canonical:
        full = under_names(root, plan.columns)
    if full is not None:
        # The time of the barrier may be written with rows that do not depend on it.
        known = tuple(dict.fromkeys((*inputs, CLOCK)))
        full_sql = render(full, lambda scan: f"{{t{known.index(scan.table)}}}")
    made = catalog.schema(plain(root if full is None else full))
    _check_types(made, plan.columns)
    hidden = tuple(column for column in made if column.name.startswith(HIDDEN_PREFIX))
    return replace(
        plan,
        mode="incremental",
        strategy=view.strategy,
        tables=inputs,
        hidden=hidden,
        key=view.key,
        full_sql=full_sql,
        canonical=canonical,
        volatile=False,
        steps=emitter.finished(),
        operators=with_stored(describe(replace(view, root=whole), hidden, forgets.ttl), parts),
        tree=tree_of(whole),
        parts=parts,
        whole_sql=_whole_sql(written, plan.columns) if parts else "",
    )


def _whole_sql(root: Node, columns: tuple[Column, ...]) -> str:
    """The query over the tables that it names, for comparison."""
    return render(under_names(root, columns), lambda scan: hole(scan.table))


def _placed(parts: tuple[StoredPart, ...], place: PlaceParts) -> tuple[StoredPart, ...]:
    """The parts that are stored, with their tables."""
    found = place(parts) if parts else {}
    return tuple(replace(part, stored=found[part.id]) for part in parts if part.id in found)


def _tables_of(parts: tuple[StoredPart, ...], catalog: Catalog) -> dict[str, TableInfo]:
    return {part.stored: catalog.table(TableName.parse(part.stored)) for part in parts}


def _check_names(root: Node, columns: tuple[Column, ...]) -> None:
    """The columns match those that Spark sees, in order (columns without a name: their number)."""
    same = len(root.columns) == len(columns) and all(
        ours.startswith("_col_") or ours.lower() == theirs.name.lower()
        for ours, theirs in zip(root.columns, columns, strict=True)
    )
    if not same:
        names = f"{', '.join(root.columns)} instead of {', '.join(c.name for c in columns)}"
        raise Unsupported(Reason("column names", f"read as {names}", "name every column"))


def _check_types(made: tuple[Column, ...], columns: tuple[Column, ...]) -> None:
    """The tree has the column types of the text: one more check that it was read correctly."""
    for ours, theirs in zip(made, columns, strict=False):
        if ours.type.lower() != theirs.type.lower():
            why = f"{theirs.name} is read as {ours.type} instead of {theirs.type}"
            raise Unsupported(Reason("column types", why))


def _refuse_unstable(root: Node) -> None:
    """Refuse unstable aggregates below the top: they can only be stored, not built on."""
    found = top(root)
    for node in walk(root):
        if not isinstance(node, Aggregate) or (found is not None and node is found[0]):
            continue
        for call in node.calls:
            name = next((n for n in UNSTABLE if n in call.template.lower()), None)
            if name is not None:
                why = "its result may differ from run to run, so nothing can be computed from it"
                raise Unsupported(Reason(f"{name}()", why, "make it the last step of a view"))


def _key_types(root: Node, schemas: Schemas) -> tuple[Column, ...]:
    found = top(root)
    if found is None or not keys_of(found[0]):
        return ()
    types = {column.name: column for column in schemas.of(found[0])}
    return tuple(types[key] for key in keys_of(found[0]))


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


def _fingerprint(
    opened: Opened, query: Any, columns: tuple[Column, ...], refresh_mode: str
) -> str:
    """A hash of everything that the meaning of a plan depends on; `query` is its text or tree."""
    parts = {
        "query": query,
        "inputs": {
            name: [info.fields, *(asdict(column) for column in info.columns)]
            for name, info in opened.tables.items()
        },
        "columns": [asdict(column) for column in columns],
        "refresh_mode": refresh_mode,
        "versions": [version, PLAN_VERSION, parser_version()],
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
