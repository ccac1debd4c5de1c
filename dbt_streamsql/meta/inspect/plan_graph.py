"""The operators of a view as a graph, with what the ledger knows of each. Pure.

Only what was counted or measured is here: the rows that changed in an input, what a state table
or the view holds and took up, and the seconds of their jobs. An operator between them has neither.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from dbt_streamsql.meta.inspect.history import CHANGED, SIZE, History
from dbt_streamsql.meta.model.records import NOOP, Job, TableVersion
from dbt_streamsql.meta.model.stored_definition import definition_of, known_plan
from dbt_streamsql.plan.algebra.expression import Expr, fill
from dbt_streamsql.plan.algebra.relational import (
    CLOCK,
    Aggregate,
    Match,
    Node,
    Scan,
    Select,
    Window,
    children,
)
from dbt_streamsql.plan.compiled import CompiledPlan
from dbt_streamsql.plan.operators import Operator
from dbt_streamsql.plan.tree_json import node_of

VIEW, STATE_TABLE, QUERY = "view", "state table", "query"
_BRANCH = "branch "


@dataclass(frozen=True)
class PlanNode:
    """One operator, or the view that the topmost one fills.

    `id` is its number in the plan, `view`, or for a branch of a wide table `branch N`; `inputs`
    are the ids of what it reads. `kind` is what it does, `text` with what. `table` is the table
    that it reads, or that holds its rows: a state table, or the view itself.

    Of the newest change of the view: `changed` counts the rows that changed in an input, `rows`
    those that were inserted and deleted in `table`, `seconds` is what its job took. `size` are the
    rows of `table`, and the bytes of their files. None: not counted, or not measured.

    `ttl`: how long it keeps state ('': it has none). `stored`: whether it has a state table (None:
    nothing of it can be stored). `inside`: it is computed with a state table, not with the view.
    """

    id: str
    kind: str
    text: str
    inputs: tuple[str, ...]
    table: str = ""
    keys: tuple[str, ...] = ()
    strategy: str = ""
    ttl: str = ""
    stored: bool | None = None
    inside: bool = False
    changed: int | None = None
    rows: tuple[int, int] | None = None
    size: tuple[int, int] | None = None
    seconds: float | None = None


@dataclass(frozen=True)
class PlanGraph:
    """The nodes, the view first, each before its inputs. `barrier` is that of the newest change of
    the view, to which the figures belong (None: it has no version)."""

    mode: str
    barrier: int | None
    nodes: tuple[PlanNode, ...]


def graph_of(job: Job, history: History) -> PlanGraph | None:
    """None where no plan is stored, or one of another version, and for a streaming table: it has
    no operators."""
    plan = known_plan(job)
    if plan is None or plan.mode not in ("incremental", "full"):
        return None
    facts = _Facts(job.table, history)
    below = _operators(plan, facts) if plan.operators else _in_full(plan, facts)
    kind = STATE_TABLE if definition_of(job).part else VIEW
    view = PlanNode(
        "view",
        kind,
        job.table,
        (below[0].id,),
        job.table,
        rows=facts.rows,
        size=facts.size(job.table),
        seconds=facts.seconds,
    )
    return PlanGraph(plan.mode, facts.barrier, (view, *below))


class _Facts:
    """What is known of the tables at the newest change of a view."""

    def __init__(self, view: str, history: History) -> None:
        self._history = history
        changes = [each for each in history.committed(view) if each.mode != NOOP]
        self._at = changes[-1] if changes else None
        self._before = history.previous(self._at) if self._at is not None else None

    @property
    def barrier(self) -> int | None:
        return self._at.barrier if self._at is not None else None

    @property
    def rows(self) -> tuple[int, int] | None:
        """The rows of the view that were inserted and deleted."""
        return (self._at.rows_inserted, self._at.rows_deleted) if self._at is not None else None

    @property
    def seconds(self) -> float | None:
        return self._at.seconds if self._at is not None else None

    def changed(self, table: str) -> int | None:
        """The rows of an input that changed since the version of the view before."""
        if self._at is None or self._before is None:
            return None
        if self._at.inputs.get(table) == self._before.inputs.get(table):
            return 0
        since = self._since(table) if table in self._history.maintained else []
        if since and all(each.mode != "full" for each in since):
            return sum(each.rows_inserted + each.rows_deleted for each in since)
        # A refresh in full rewrites rows that did not change.
        counted: Mapping[str, int] = self._at.stats.get(CHANGED, {})
        return counted.get(table)

    def stored(self, table: str) -> tuple[TableVersion | None, tuple[int, int] | None]:
        """The version of a state table that the view has read, and the rows that changed in it."""
        known = [
            each
            for each in self._history.committed(table)
            if each.mode != NOOP and (self.barrier is None or each.barrier <= self.barrier)
        ]
        if not known:
            return None, None
        found = self._since(table)
        inserted = sum(each.rows_inserted for each in found)
        return known[-1], (inserted, sum(each.rows_deleted for each in found))

    def size(self, table: str) -> tuple[int, int] | None:
        found, _ = self.stored(table)
        return _size(found) if found is not None else None

    def _since(self, table: str) -> list[TableVersion]:
        first = self._before.barrier if self._before is not None else 0
        last = self.barrier or 0
        return [
            each
            for each in self._history.committed(table)
            if first < each.barrier <= last and each.mode != NOOP
        ]


def _size(version: TableVersion) -> tuple[int, int] | None:
    known = version.stats.get(SIZE)
    return (known[0], known[1]) if known else None


def _in_full(plan: CompiledPlan, facts: _Facts) -> tuple[PlanNode, ...]:
    """The query as one node over its inputs."""
    scans = [_scan(str(at), table, facts) for at, table in enumerate(plan.sources, 1)]
    why = "; ".join(plan.reasons)
    return (PlanNode("0", QUERY, why, tuple(scan.id for scan in scans)), *scans)


def _scan(number: str, table: str, facts: _Facts) -> PlanNode:
    return PlanNode(
        number, "scan", table, (), table, changed=facts.changed(table), size=facts.size(table)
    )


def _operators(plan: CompiledPlan, facts: _Facts) -> tuple[PlanNode, ...]:
    nodes = _walk(node_of(plan.tree))
    parts = {at: part for part in plan.parts for at in part.operators}
    ids = [_id(at, operator) for at, operator in enumerate(plan.operators)]
    found: list[PlanNode] = []
    hidden_below: int | None = None
    for at, operator in enumerate(plan.operators):
        if hidden_below is not None and operator.depth <= hidden_below:
            hidden_below = None
        inputs = tuple(ids[child] for child in _children(plan.operators, at))
        node = None if operator.name.startswith(_BRANCH) else next(nodes, None)
        part = parts.get(operator.id) if operator.id else None
        made = _node(ids[at], operator, node, inputs, facts, hidden_below is not None)
        if part is not None and hidden_below is None:
            version, rows = facts.stored(part.stored) if part.stored else (None, None)
            made = replace(
                made,
                stored=bool(part.stored),
                table=part.stored,
                rows=rows,
                size=_size(version) if version is not None else None,
                seconds=version.seconds if version is not None and rows != (0, 0) else None,
            )
            # The keys of a join's right side are stored, and the join itself is not.
            if part.stored and not part.keys:
                hidden_below = operator.depth
        found.append(made)
    return tuple(found)


def _node(
    number: str,
    operator: Operator,
    node: Node | None,
    inputs: tuple[str, ...],
    facts: _Facts,
    inside: bool,
) -> PlanNode:
    table = node.table if isinstance(node, Scan) and node.table != CLOCK else ""
    return PlanNode(
        number,
        operator.name,
        _text(operator, node),
        inputs,
        table,
        operator.keys,
        operator.strategy,
        operator.ttl,
        inside=inside,
        changed=facts.changed(table) if table and not inside else None,
        size=facts.size(table) if table and not inside else None,
    )


def _id(at: int, operator: Operator) -> str:
    return str(operator.id) if operator.id else f"branch {at}"


def _children(operators: tuple[Operator, ...], at: int) -> Iterator[int]:
    """The places of the operators that one reads: parents come first."""
    for below in range(at + 1, len(operators)):
        if operators[below].depth <= operators[at].depth:
            return
        if operators[below].depth == operators[at].depth + 1:
            yield below


def _walk(node: Node) -> Iterator[Node]:
    """The operators in the order of their numbers."""
    yield node
    for child in children(node):
        yield from _walk(child)


def _text(operator: Operator, node: Node | None) -> str:
    """What an operator does, in a few words: its condition, its keys, or its columns."""
    if isinstance(node, Select):
        if node.where:
            return " AND ".join(_said(expr, len(node.inputs) > 1) for expr in node.where)
        return ", ".join(node.columns) if len(node.inputs) == 1 else operator.detail
    if isinstance(node, Match):
        return " AND ".join(_said(expr, True) for expr in node.on)
    if isinstance(node, Aggregate):
        return f"{operator.detail} by {', '.join(node.keys)}" if node.keys else operator.detail
    if isinstance(node, Window) and node.partition:
        return f"{operator.detail} by {', '.join(node.partition)}"
    return operator.detail


def _said(expr: Expr, named: bool) -> str:
    """An expression without quotes; `named`: with the names of the inputs."""
    return fill(
        expr.template,
        lambda hole: ".".join(expr.refs[int(hole)]) if named else expr.refs[int(hole)][1],
    )
