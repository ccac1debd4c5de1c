"""Mistakes in what a reader is shown, planted one at a time; the checker has to find each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest.mock import patch

from tests.support.product import replaced, roll_back, symbol

Leases = symbol("SqlLeases")
sweep = symbol("sweep", beside="roll_back")

Planted = Callable[[], AbstractContextManager[Any]]


def _open_barriers() -> Any:
    beside = "_together"
    shown = {**symbol("_SHOWN", beside), "read_committed": ("OPEN", "PRECOMMIT")}
    return replaced("_SHOWN", shown, beside)


def _behind() -> Any:
    return replaced("_together", lambda reader, newest, group: newest)


def _unheard() -> Any:
    return replaced("_leased", lambda warehouse: {})


def _short() -> Any:
    """What it has taken has ended before it is used."""
    take = Leases.take
    return patch.object(
        Leases, "take", lambda self, owner, barrier: take(self, owner, barrier, -1.0)
    )


@contextmanager
def _undone() -> Iterator[None]:
    """Recovery that gives up what was staged in all tables."""

    def recover(warehouse: Any, fence: Any) -> None:
        for barrier in warehouse.store.unfinished():
            with replaced("to_abort", lambda found: []):
                roll_back(warehouse, fence, barrier.id)
        sweep(warehouse, fence)

    with replaced("recover", recover):
        yield


READERS: Mapping[str, Planted] = {
    "read_committed looks into open barriers": _open_barriers,
    "a table that was left behind counts as up to date": _behind,
    "a lease has ended before it begins": _short,
}
WRITERS: Mapping[str, Planted] = {
    "what readers hold is not pinned": _unheard,
    "recovery undoes what readers have seen": _undone,
}
"""By what they get wrong, in the process that has the mistake."""
