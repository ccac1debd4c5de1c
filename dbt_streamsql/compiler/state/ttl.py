"""How long the operators of a view keep state: the state slots in its tree, and their TTLs.

A view V over inputs S with TTLs becomes, at a barrier of the time T,

    V' = V + Q(S'_T) − Q(S_T)

where S_T are the earlier rows written since T minus their TTL, and S'_T is S_T with this epoch's
change; a deleted row that is not in S_T is ignored. The view never retracts rows that it did not
emit, since Q of fewer rows is part of Q: this holds through filters, unions, inner joins and the
preserved side of the other joins, but not through groups and windows. Those can only have a TTL at
the top of a view, where their rows are stored (docs/state_ttl.md describes the effect for each).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from dbt_streamsql.compiler.lowering.view import top
from dbt_streamsql.compiler.rules import fold
from dbt_streamsql.errors import Place, StreamSqlError
from dbt_streamsql.plan.algebra.relational import (
    CLOCK,
    Aggregate,
    Branches,
    Generate,
    Input,
    Keyed,
    Limit,
    Match,
    Node,
    Scan,
    Select,
    UnionAll,
    Window,
    children,
    is_join,
    scans,
    walk,
    with_children,
)
from dbt_streamsql.plan.state import (
    DEDUPLICATE,
    GROUPS,
    KEPT,
    LEFT,
    LIMIT,
    OVER,
    RANK,
    RIGHT,
    SORT_LIMIT,
    State,
    StateTtl,
    display_ttl,
    lasting,
)

_NESTED = "its rows cannot be derived from the view's stored rows; make it a separate model"
_PARTNERS = "a row whose last partner was forgotten would seem to have none"
_WIDE = "a wide table is built from the rows of its branches"
_FIRST = frozenset({"{0} = 1", "{0} <= 1", "{0} < 2"})


@dataclass(frozen=True)
class Slot:
    """One entry of state: of the node `id` (numbered from 1, parents first); `names` are those
    that a config may use for it in addition to its `kind`."""

    id: int
    kind: str
    state: State
    names: frozenset[str] = frozenset()

    def __str__(self) -> str:
        return f"{self.state.name} (node {self.id}, input {self.state.index})"


def slots(root: Node, wanted: StateTtl | None = None) -> tuple[Slot, ...]:
    """All state of a view, with its TTLs, and the config entries that they come from."""
    found = tuple(_slots(root, 1, top(root), ""))
    if wanted is None:
        return found
    return tuple(
        replace(slot, state=replace(slot.state, said=_chosen(slot, wanted)[1])) for slot in found
    )


def _slots(node: Node, at: int, best: tuple[Keyed, Select] | None, blocked: str) -> Iterator[Slot]:
    below = _blocked(node, best, blocked)
    yield from _own(node, at, best, blocked)
    number = at + 1
    for child, why in zip(children(node), below, strict=True):
        yield from _slots(child, number, best, why)
        number += sum(1 for _ in walk(child))


def _blocked(node: Node, best: tuple[Keyed, Select] | None, blocked: str) -> list[str]:
    """For each child, why rows below it cannot expire ('' = they can)."""
    if isinstance(node, Branches):
        return [_WIDE] * len(node.inputs)
    if isinstance(node, Match):
        partners = blocked or _PARTNERS
        return [partners if node.kind == "full" else blocked, partners]
    if isinstance(node, Aggregate | Window | Limit) and not (best and node is best[0]):
        return [blocked or _NESTED]
    return [blocked] * len(children(node))


def _own(node: Node, at: int, best: tuple[Keyed, Select] | None, blocked: str) -> Iterator[Slot]:
    if is_join(node):
        names = [LEFT, RIGHT] if len(node.inputs) == 2 else []
        for index, child in enumerate(node.inputs):
            name = names[index] if names else f"join-{index}-state"
            yield from _joined(child, at, index, name, blocked)
    elif isinstance(node, Match):
        right = blocked or _PARTNERS
        left = right if node.kind == "full" else blocked
        yield from _joined(node.left, at, 0, LEFT, left)
        yield from _joined(node.right, at, 1, RIGHT, right)
    elif isinstance(node, Aggregate | Window | Limit):
        yield from _keyed(node, at, best, blocked)


def _joined(child: Input, at: int, index: int, name: str, blocked: str) -> Iterator[Slot]:
    if any(isinstance(part, Aggregate | Window | Limit) for part in walk(child.node)):
        yield Slot(at, "joins", State(index, name, 0, blocked or _NESTED))
        return
    found = _chain(child.node)
    if found and all(scan.table != CLOCK for scan in found):
        tables = {scan.table.rpartition(".")[2].lower() for scan in found}
        state = State(index, name, display_ttl(found[0].ttl), blocked)
        yield Slot(at, "joins", state, frozenset({child.alias.lower(), *tables}))


def _keyed(
    node: Keyed, at: int, best: tuple[Keyed, Select] | None, blocked: str
) -> Iterator[Slot]:
    kind, name = _named(node, best)
    if not best or node is not best[0]:
        yield Slot(at, kind, State(0, name, 0, blocked or _NESTED))
    elif isinstance(node, Aggregate) and fold.applies(*best):  # type: ignore[arg-type]
        yield Slot(at, kind, State(0, name, display_ttl(node.ttl)))
    elif found := _chain(node.input):
        yield Slot(at, kind, State(0, name, display_ttl(found[0].ttl)))


def _named(node: Keyed, best: tuple[Keyed, Select] | None) -> tuple[str, str]:
    """The kind of a keyed operator, and the name of its state."""
    if isinstance(node, Aggregate):
        return "aggregates", GROUPS
    if isinstance(node, Limit):
        return "limits", SORT_LIMIT if node.order else LIMIT
    numbers = {o.name for o in node.overs if o.call.template.lower().startswith("row_number(")}
    places = numbers | {
        o.name for o in node.overs if o.call.template.lower().startswith(("rank(", "dense_rank("))
    }
    asked = best[1].where if best and node is best[0] else ()
    for expr in asked:
        refs = {ref[1] for ref in expr.refs}
        if refs and refs <= numbers and expr.template in _FIRST:
            return "deduplicate", DEDUPLICATE
        if refs and refs <= places:
            return "rank", RANK
    return "windows", OVER


def _chain(node: Node) -> tuple[Scan, ...]:
    """The scans whose rows alone make each row of the node; () when other rows matter too."""
    if isinstance(node, Scan):
        return (node,)
    if isinstance(node, Select) and len(node.inputs) == 1:
        return _chain(node.inputs[0].node)
    if isinstance(node, Generate):
        return _chain(node.input)
    if isinstance(node, UnionAll):
        parts = [_chain(part) for part in node.inputs]
        return tuple(scan for part in parts for scan in part) if all(parts) else ()
    return ()


# -- setting TTLs ------------------------------------------------------------------------------


def with_ttls(root: Node, wanted: StateTtl, place: Place) -> Node:
    """The tree with the TTLs of a config; STATE_TTL_INVALID lists everything wrong with it."""
    found = slots(root)
    chosen = {(slot.id, slot.state.index): _chosen(slot, wanted)[0] for slot in found}
    wrong = [*_unknown(found, wanted), *_impossible(found, chosen)]
    made = _given(root, 1, chosen)[0]
    if not wrong:
        wrong = _loose(made)
    if wrong:
        raise StreamSqlError(
            "STATE_TTL_INVALID",
            "the state of this view cannot be kept as `state_ttl` requires",
            given="; ".join(wrong),
            allowed="; ".join(
                f"{slot.state.name}: by_id: {{{slot.id}: {{{slot.state.index}: …}}}}"
                for slot in found
                if not slot.state.fixed
            )
            or "no operator of this view can forget",
            hint="a TTL of 0 keeps state for ever; `explain` shows every operator with its id",
            place=place,
        )
    return made


def _chosen(slot: Slot, wanted: StateTtl) -> tuple[int, str]:
    """The TTL of a slot and the config entry that sets it: the most specific one."""
    key = (slot.id, slot.state.index)
    if key in wanted.ids:
        return wanted.ids[key], "by_id"
    for what, said in (("hint", wanted.hints), ("joins:", wanted.inputs)):
        for name, ttl in said.items():
            if name.lower() in slot.names:
                return ttl, f"{what} {name}"
    if slot.kind in wanted.kinds:
        return wanted.kinds[slot.kind], slot.kind
    return wanted.default, "default" if wanted.default else ""


def _unknown(found: Sequence[Slot], wanted: StateTtl) -> list[str]:
    names = {name for slot in found for name in slot.names}
    kinds = {slot.kind for slot in found}
    ids = {(slot.id, slot.state.index) for slot in found}
    return [
        *(f"no join reads {n}" for n in (*wanted.hints, *wanted.inputs) if n.lower() not in names),
        *(f"the view has no {kind}" for kind in wanted.kinds if kind not in kinds),
        *(f"node {i} has no state of input {at}" for i, at in wanted.ids if (i, at) not in ids),
    ]


def _impossible(found: Sequence[Slot], chosen: dict[tuple[int, int], int]) -> list[str]:
    return [
        f"{slot} cannot be forgotten: {slot.state.fixed}"
        for slot in found
        if slot.state.fixed and chosen[slot.id, slot.state.index]
    ]


def _loose(root: Node) -> list[str]:
    """Groups that may expire while some of their rows are still remembered."""
    found = top(root)
    if found is None or not isinstance(found[0], Aggregate) or not found[0].ttl:
        return []
    if _within(found[0].input, found[0].ttl):
        return []
    kept = f"groups are kept for {lasting(found[0].ttl)}"
    what = "so one input of each join below them must not be kept longer"
    return [f"{kept}, {what}: give one a TTL, or make the join a separate model"]


def _within(node: Node, ttl: int) -> bool:
    """Whether a row of the node is looked up only within that time after it was created."""
    if isinstance(node, Scan):
        return 0 < node.ttl <= ttl
    if isinstance(node, Match):
        return node.kind != "full" and _within(node.left.node, ttl)
    if isinstance(node, Select):
        return any(_within(child.node, ttl) for child in node.inputs)
    if isinstance(node, Generate):
        return _within(node.input, ttl)
    return isinstance(node, UnionAll) and all(_within(part, ttl) for part in node.inputs)


def _given(node: Node, at: int, chosen: dict[tuple[int, int], int]) -> tuple[Node, int]:
    """The node with its TTLs, and the number of the node after it."""
    number = at + 1
    made: list[Node] = []
    for index, child in enumerate(children(node)):
        new, number = _given(child, number, chosen)
        ttl = chosen.get((at, index))
        made.append(_kept(new, ttl) if ttl and _chain(child) else new)
    result = with_children(node, tuple(made))
    if isinstance(result, Aggregate) and chosen.get((at, 0)):
        result = replace(result, ttl=chosen[at, 0])
    return result, number


def _kept(node: Node, ttl: int) -> Node:
    if isinstance(node, Scan):
        return replace(node, ttl=ttl)
    return with_children(node, tuple(_kept(child, ttl) for child in children(node)))


# -- changed TTLs -----------------------------------------------------------------------------


def reads(root: Node) -> tuple[Scan, ...]:
    """The scans of tables; their positions identify the expired rows."""
    return tuple(scan for scan in scans(root) if scan.table != CLOCK)


def still_forgetting(root: Node, old: Node) -> Node:
    """The tree of a view that had the tree `old`: a scan that had a TTL and has none now is
    `KEPT`.

    Scans are matched by position; a tree that reads other tables is returned as it is.
    """
    before = reads(old)
    if not any(scan.ttl for scan in before):
        return root
    if [scan.table for scan in reads(root)] != [scan.table for scan in before]:
        return root
    chosen: dict[tuple[int, int], int] = {}
    for slot in slots(root):
        key = (slot.id, slot.state.index)
        if slot.state.ttl or slot.state.fixed:
            continue
        marked = _given(root, 1, {key: KEPT})[0]
        had = any(
            was.ttl and new.ttl == KEPT for new, was in zip(reads(marked), before, strict=True)
        )
        if had or (_of_groups(marked) == KEPT and _of_groups(old)):
            chosen[key] = KEPT
    return _given(root, 1, chosen)[0]


def forgets_all(root: Node, old: Node) -> bool:
    """Whether the rows that `old` has forgotten are forgotten by the new tree too."""
    before, now = reads(old), reads(root)
    if not any(scan.ttl for scan in before):
        return True
    same = [scan.table for scan in now] == [scan.table for scan in before]
    return same and all(new.ttl or not was.ttl for new, was in zip(now, before, strict=True))


def _of_groups(root: Node) -> int:
    """The TTL of the groups that a view stores."""
    found = top(root)
    return found[0].ttl if found is not None and isinstance(found[0], Aggregate) else 0
