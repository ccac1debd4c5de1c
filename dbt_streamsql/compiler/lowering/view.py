"""The view that a program maintains, and the form `SELECT … FROM (keyed node)` of its top."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from dbt_streamsql.compiler.parsing.unsupported import Reason, Unsupported
from dbt_streamsql.plan.algebra.expression import Expr
from dbt_streamsql.plan.algebra.likeness import has_likeness
from dbt_streamsql.plan.algebra.relational import (
    Aggregate,
    Input,
    Keyed,
    Limit,
    Node,
    Output,
    Select,
    Window,
    keys_of,
)
from dbt_streamsql.plan.algebra.schema import HIDDEN_PREFIX, Column
from dbt_streamsql.plan.compiled import Strategy


@dataclass(frozen=True)
class View:
    """The query of a view with the columns as Spark types them.

    Set after a rule has planned it: `strategy`, the stored `key` columns, and `full`, the query
    that also fills hidden columns (None: the user's own SQL does).
    """

    root: Node
    columns: tuple[Column, ...]
    strategy: Strategy = ""
    key: tuple[str, ...] = ()
    full: Node | None = None


@dataclass(frozen=True)
class Key:
    """Where the keys are stored: column names in key order, and the hidden ones."""

    columns: tuple[str, ...]
    hidden: tuple[Output, ...]


def top(node: Node) -> tuple[Keyed, Select] | None:
    """The keyed node under the projection of a view, or None when there is no such form."""
    if isinstance(node, Aggregate | Window | Limit):
        outputs = tuple(Output(name, Expr.column("g", name)) for name in node.columns)
        return node, Select((Input("g", node),), (), outputs)
    if isinstance(node, Select) and len(node.inputs) == 1:
        below = node.inputs[0].node
        if isinstance(below, Aggregate | Window | Limit):
            return below, node
    return None


def under_names(root: Node, columns: tuple[Column, ...]) -> Select:
    """The query with the column names of the view."""
    pairs = zip(root.columns, columns, strict=True)
    outputs = tuple(Output(new.name, Expr.column("v", old)) for old, new in pairs)
    return Select((Input("v", root),), (), outputs)


def keyed_view(view: View) -> tuple[Keyed, Select, Key]:
    """The parts of a view for which `top` holds; keys not in the output are hidden."""
    found = top(view.root)
    assert found is not None
    node, select = found
    alias = select.inputs[0].alias
    keys = keys_of(node)
    shown: dict[str, str] = {}
    for output, column in zip(select.outputs, view.columns, strict=True):
        ref = output.expr.as_column
        if ref is not None and ref[1] in keys:
            shown.setdefault(ref[1], column.name)
    names: list[str] = []
    hidden: list[Output] = []
    for key in keys:
        name = shown.get(key)
        if name is None:
            name = f"{HIDDEN_PREFIX}key_{key}"
            hidden.append(Output(name, Expr.column(alias, key)))
        names.append(name)
    return node, select, Key(tuple(names), tuple(hidden))


def refuse_incomparable(columns: Iterable[Column], what: str) -> None:
    """Maps and variants cannot be keys: Spark cannot compare them."""
    for column in columns:
        if not column.is_comparable:
            raise Unsupported(
                Reason(what, f"column {column.name} of type {column.type} cannot be compared")
            )


def refuse_unlike(columns: Iterable[Column], what: str) -> None:
    """Refuse columns without a stand-in: their rows cannot be identified for retraction."""
    refuse_incomparable((column for column in columns if not has_likeness(column)), what)


def refuse_collated(columns: tuple[Column, ...]) -> None:
    """A collation makes different strings equal: a change from one to the other would not be seen,
    and it is undefined which of them stands for a group."""
    for column in columns:
        if column.stored_type != column.type:
            raise Unsupported(
                Reason(
                    "COLLATE",
                    f"column {column.name} of type {column.type} has a collation",
                    "apply the collation where strings are compared, or CAST the column AS STRING",
                )
            )
