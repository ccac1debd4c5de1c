"""The state machine of a barrier, as data, and what each step requires. Pure: no clock, no store.

    OPEN ──precommit──> PRECOMMIT ──commit──> COMMIT
      └────abort─────> ABORT

A table version is PROCESSED (staged, invisible) in an OPEN barrier and WRITTEN (published) in a
PRECOMMIT one. A crash before PRECOMMIT can only be rolled back, after it only rolled forward.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dbt_streamsql.errors import StreamSqlError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from dbt_streamsql.meta.model.records import (
        Barrier,
        BarrierState,
        Fence,
        TableVersion,
        VersionState,
    )

BARRIER_MOVES: Mapping[BarrierState, frozenset[BarrierState]] = {
    "OPEN": frozenset({"PRECOMMIT", "ABORT"}),
    "PRECOMMIT": frozenset({"COMMIT"}),
    "COMMIT": frozenset(),
    "ABORT": frozenset(),
}
VERSION_MOVES: Mapping[VersionState | None, frozenset[VersionState]] = {
    None: frozenset({"PROCESSED"}),
    "PROCESSED": frozenset({"PROCESSED", "WRITTEN"}),
    "WRITTEN": frozenset(),
}
VERSION_NEEDS: Mapping[VersionState, BarrierState] = {"PROCESSED": "OPEN", "WRITTEN": "PRECOMMIT"}
"""The state a barrier must be in for a version to move to the key."""

UNFINISHED: tuple[BarrierState, ...] = tuple(s for s, to in BARRIER_MOVES.items() if to)


@dataclass(frozen=True)
class Requirement:
    """One condition of a step: what is checked, what is expected, what is found."""

    what: str
    expected: str
    found: str
    holds: bool


def demand(step: str, requirements: Iterable[Requirement]) -> None:
    """Raise META_CONFLICT that names every failed requirement of `step`."""
    broken = [r for r in requirements if not r.holds]
    if broken:
        raise StreamSqlError(
            "META_CONFLICT",
            f"cannot {step}: {'; '.join(r.what for r in broken)}",
            given="; ".join(r.found for r in broken),
            allowed="; ".join(r.expected for r in broken),
            hint="nothing was changed; if another process took over, let it finish; "
            "otherwise run again: an unfinished barrier is cleaned up first",
        )


def same_fence(mine: Fence, stored: Fence) -> Requirement:
    """A writer must hold the newest fence, and must not have released it."""
    return Requirement("the fence is not current", str(mine), str(stored), mine == stored)


def known(barrier: int, found: Barrier | None, step: str) -> Barrier:
    """The barrier itself, or META_CONFLICT when it never existed or was removed."""
    if found is None:
        demand(
            step, [Requirement("there is no such barrier", f"barrier {barrier}", "none", False)]
        )
        raise AssertionError(step)
    return found


def barrier_in(barrier: Barrier, *states: BarrierState) -> Requirement:
    return Requirement(
        f"barrier {barrier.id} is in the wrong state",
        " or ".join(states) or "no further step",
        barrier.state,
        barrier.state in states,
    )


def may_move(barrier: Barrier, to: BarrierState) -> Requirement:
    return barrier_in(barrier, *(s for s, targets in BARRIER_MOVES.items() if to in targets))


def begun_by(barrier: Barrier, fence: Fence) -> Requirement:
    """An OPEN barrier is continued only by its own runner: a successor does not know its plan."""
    return Requirement(
        f"barrier {barrier.id} was begun by another runner",
        f"fence {fence.token}",
        f"fence {barrier.fence}",
        barrier.fence == fence.token,
    )


def unchanged(rows: int) -> Requirement:
    """A compare-and-swap found its row, so no process changed it between look and step."""
    return Requirement("the state changed in the meantime", "1 row", f"{rows} rows", rows == 1)


def new_token(token: str, owner: str | None) -> Requirement:
    """Staged data has a unique name; `owner` is the owner that already uses it."""
    return Requirement("the token is already used", f"not {token}", str(owner), owner is None)


def to_begin(unfinished: Sequence[Barrier]) -> list[Requirement]:
    """All earlier barriers are closed."""
    return [
        Requirement(
            "a barrier is not finished",
            "only barriers in COMMIT or ABORT",
            ", ".join(f"barrier {b.id} in {b.state}" for b in unfinished),
            not unfinished,
        )
    ]


def to_stage(barrier: Barrier, fence: Fence) -> list[Requirement]:
    """Inputs, definitions, versions and change files enter the runner's own OPEN barrier."""
    return [barrier_in(barrier, VERSION_NEEDS["PROCESSED"]), begun_by(barrier, fence)]


def common_barrier(versions: Sequence[TableVersion]) -> int:
    """The one barrier that these versions, at least one, are staged in."""
    barriers = {version.barrier for version in versions}
    if len(barriers) != 1 or any(version.state != "PROCESSED" for version in versions):
        raise ValueError("versions must be PROCESSED and of one barrier")
    return barriers.pop()


def to_precommit(barrier: Barrier, fence: Fence, unbuilt: Sequence[str]) -> list[Requirement]:
    """`unbuilt`: tables with a provisional definition and no version in this barrier.

    Such a definition would become current over data of the old definition.
    """
    return [
        may_move(barrier, "PRECOMMIT"),
        begun_by(barrier, fence),
        Requirement(
            "a definition has no data",
            "a version of every table that has a new definition",
            f"none of {', '.join(unbuilt)}",
            not unbuilt,
        ),
    ]


def to_write(barrier: Barrier, table: str, state: VersionState | None) -> list[Requirement]:
    """Publishing one table; `state` is None when the barrier holds no version of it."""
    return [
        barrier_in(barrier, VERSION_NEEDS["WRITTEN"]),
        Requirement(
            f"the version of {table} cannot be published",
            " or ".join(str(s) for s, targets in VERSION_MOVES.items() if "WRITTEN" in targets),
            str(state or "no version"),
            "WRITTEN" in VERSION_MOVES[state],
        ),
    ]


def to_commit(barrier: Barrier, unwritten: Sequence[str]) -> list[Requirement]:
    """`unwritten`: tables whose version is neither WRITTEN nor a noop."""
    return [
        may_move(barrier, "COMMIT"),
        Requirement(
            "a table is not published",
            "every version WRITTEN",
            f"{', '.join(unwritten)} PROCESSED",
            not unwritten,
        ),
    ]


def leasable(barrier: int, state: BarrierState | None, kept_from: int) -> list[Requirement]:
    """Only committed barriers that are not removed stay the same for a reader."""
    return [
        Requirement(
            f"barrier {barrier} cannot be leased",
            f"a committed barrier from {kept_from} on",
            "forgotten" if barrier < kept_from else state or "no such barrier",
            state == "COMMIT" and barrier >= kept_from,
        )
    ]


def to_abort(barrier: Barrier) -> list[Requirement]:
    return [may_move(barrier, "ABORT")]
