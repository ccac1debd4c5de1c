"""The stream columns behind each column of a keyed table, for streams that may omit values.

Let a record of key k leave out the columns U. A stored column whose expression reads only columns
of U and the key keeps its value: the record left all its inputs unchanged. A column that also
reads other columns is unknown. This holds as long as every change of k arrives: so a WHERE may
read only the key, or pass every record that creates or changes a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dbt_streamsql.compiler.codegen.render_sql import render
from dbt_streamsql.compiler.compile import compile_view
from dbt_streamsql.compiler.stream_query import OneStream
from dbt_streamsql.plan.algebra.catalog import Catalog, TableInfo
from dbt_streamsql.plan.algebra.expression import Expr, fill
from dbt_streamsql.plan.algebra.relational import (
    Input,
    Output,
    Scan,
    Select,
)
from dbt_streamsql.plan.algebra.schema import Column
from dbt_streamsql.plan.compiled import CompiledPlan
from dbt_streamsql.plan.definition.unsent import LACKS, LACKS_TYPE, Carrying
from dbt_streamsql.plan.tree_json import node_of
from dbt_streamsql.quoting import quote

OPERATION = "_op"
_NAMES = tuple(f"streamsql_{name}_of_record" for name in ("sequence", "delete", "truncate"))


def carrying_of(
    plan: CompiledPlan,
    text: str,
    stream: TableInfo,
    known: Catalog,
    *,
    omitted: Sequence[str],
    identity: Sequence[str] | None,
) -> tuple[Carrying, tuple[str, ...]]:
    """How the table of `plan` treats records that lack some of `omitted`, and conditions on
    `_op` that must hold for c, r and u.

    `text` is the query with a record's sequence, and whether it deletes one key or all.
    `identity`: the columns by which the source identifies its rows, if it declares them.
    """
    catalog = OneStream(known, stream, known.default_catalog)
    *made, sequence, deleted, cleared = catalog.schema(text)
    shown = ", ".join(quote(column.name) for column in made)
    more = zip((sequence, deleted, cleared), _NAMES, strict=True)
    ends = ", ".join(f"{quote(given.name)} AS {name}" for given, name in more)
    found = compile_view(f"SELECT {shown}, {ends} FROM ({text})", catalog, table=plan.table)
    root = node_of(found.tree) if found.mode == "incremental" else None
    is_plain = (
        isinstance(root, Select)
        and len(root.inputs) == 1
        and type(root.inputs[0].node) is Scan
        and not found.canonical
    )
    if not is_plain:
        return Carrying(reason="the query is more than a SELECT of columns with a WHERE"), ()
    assert isinstance(root, Select)
    given = root.inputs[0]
    outputs = dict(zip([c.name for c in made], root.outputs, strict=False))
    keys = [outputs[name].expr.as_column for name in plan.key]
    key = {ref[1].lower() for ref in keys if ref is not None}
    if None in keys:
        return Carrying(reason="a column of the key is not a column of the source itself"), ()
    if identity is not None and key != {name.lower() for name in identity}:
        why = f"the key differs from that of the source, ({', '.join(identity)})"
        return Carrying(reason=why), ()
    conditions = []
    for term in root.where:
        read = _read(term) - key
        if not read:
            continue
        if read != {OPERATION} or _read(term) & key:
            columns = ", ".join(sorted(read))
            why = f"the WHERE of the query reads {columns}, so it may have skipped a change"
            return Carrying(reason=why), ()
        conditions.append(fill(term.render(lambda ref: quote(ref[1])), str))
    missing = {name.lower(): name for name in omitted}
    depends = {}
    for column in plan.columns:
        own = outputs.get(column.name)
        read = _read(own.expr) - key if own is not None and column.name not in plan.key else set()
        if read & missing.keys():
            depends[column.name] = tuple(sorted(missing.get(name, name) for name in read))
    placed, *more_read = (output.expr for output in root.outputs[len(made) :])
    placing = [*root.where, placed, *(outputs[name].expr for name in plan.key)]
    places = {name for term in placing for name in _read(term)}
    needed = {name for term in more_read for name in _read(term)} | places
    query = _with_lacks(root, given, [c.name for c in made])
    if not _is_same(query, made, stream, catalog):
        return Carrying(reason="the rewritten query has different columns"), ()
    needed = {own for name, own in missing.items() if name in needed}
    return Carrying(query, depends, tuple(sorted(needed)), tuple(sorted(places))), tuple(
        conditions
    )


def _read(expr: Expr) -> set[str]:
    return {column.lower() for _, column in expr.refs}


def _with_lacks(root: Select, given: Input, names: Sequence[str]) -> str:
    scan = given.node
    assert isinstance(scan, Scan)
    wider = Input(given.alias, replace(scan, columns=(*scan.columns, LACKS)))
    shown = zip(names, root.outputs, strict=False)
    outputs = [Output(name, output.expr) for name, output in shown]
    outputs.append(Output(LACKS, Expr.column(given.alias, LACKS)))
    return render(Select((wider,), root.where, tuple(outputs)), lambda _: "{stream}")


def _is_same(query: str, made: Sequence[Column], stream: TableInfo, catalog: Catalog) -> bool:
    """One more check that the query was read correctly."""
    columns = [*((c.name, c.type) for c in stream.columns), (LACKS, LACKS_TYPE)]
    empty = ", ".join(f"CAST(NULL AS {kind}) AS {quote(name)}" for name, kind in columns)
    found = catalog.schema(fill(query, lambda _: f"(SELECT {empty} WHERE false)"))
    return [(c.name, c.type) for c in found[:-1]] == [(c.name, c.type) for c in made]
