"""SIGINT and SIGTERM as an event that a loop can wait for."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from types import FrameType


def _nothing() -> None:
    pass


@contextmanager
def stop_on_signals(again: Callable[[], None] = _nothing) -> Iterator[threading.Event]:
    """An event that the first signal sets; every later signal calls `again` in the main thread.

    Call it in the main thread. Afterward the signals do what they did before.
    """
    stop = threading.Event()
    # Python runs a handler between two steps of the main thread, which may hold the lock of the
    # event at that moment: a handler that set the event would wait for itself. `put` has no lock.
    asked: SimpleQueue[int | None] = SimpleQueue()
    heard: list[int] = []

    def hear(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - Python's signature
        heard.append(number)
        asked.put(number)
        if len(heard) > 1:
            again()

    def set_when_asked() -> None:
        if asked.get() is not None:
            stop.set()

    threading.Thread(target=set_when_asked, name="streamsql-signals", daemon=True).start()
    before = {each: signal.signal(each, hear) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
        asked.put(None)
