"""Mistakes in what a reader is shown, planted one at a time; the checker has to find each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from importlib import import_module
from typing import Any
from unittest.mock import patch

from dbt_streamsql.meta.leases import Leases
from dbt_streamsql.runtime import publish

cut = import_module("dbt_streamsql.meta.cut")  # the package has a function of that name

Planted = Callable[[], AbstractContextManager[Any]]


def _open_barriers() -> Any:
    shown = {**cut._SHOWN, "read_committed": ("OPEN", "PRECOMMIT")}
    return patch.object(cut, "_SHOWN", shown)


def _behind() -> Any:
    return patch.object(cut, "_together", lambda reader, newest, group: newest)


def _unheard() -> Any:
    return patch.object(publish, "_leased", lambda warehouse: {})


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
            with patch("dbt_streamsql.meta.transitions.to_abort", lambda found: []):
                publish.roll_back(warehouse, fence, barrier.id)
        publish.sweep(warehouse, fence)

    with patch.object(publish, "recover", recover):
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
