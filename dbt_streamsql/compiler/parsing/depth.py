"""Runs work on texts that are nested deeper than Python's recursion limit."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")

_CALLS = 100_000
_STACK = 512 * 1024 * 1024
"""Bytes of address space; unused space takes no memory."""
_one = threading.Lock()
"""The limits apply to the whole process."""


def deeply(work: Callable[[], T]) -> T:
    """`work()`, retried with a much larger stack when it is nested too deeply."""
    try:
        return work()
    except RecursionError:
        pass
    done: Future[T] = Future()

    def run() -> None:
        try:
            done.set_result(work())
        except BaseException as error:  # noqa: BLE001 - the caller gets it
            done.set_exception(error)

    with _one:
        calls, stack = sys.getrecursionlimit(), threading.stack_size(_STACK)
        sys.setrecursionlimit(_CALLS)
        try:
            thread = threading.Thread(target=run, name="streamsql-deep-query")
            thread.start()
            thread.join()
        finally:
            threading.stack_size(stack)
            sys.setrecursionlimit(calls)
    return done.result()
