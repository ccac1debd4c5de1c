"""Durable steps, watched from inside the process."""

from __future__ import annotations

from contextlib import contextmanager

import pytest

from dbt_streamsql.runtime.core import failpoints


@contextmanager
def observing(observer):
    """Inside, `observer(step, moment)` is called before and after each durable step; what it raises
    ends the step there."""
    failpoints.observers.append(observer)
    try:
        yield
    finally:
        failpoints.observers.remove(observer)


class Died(BaseException):
    """What a process that is killed does not survive."""


@contextmanager
def dying(step, nth=1, moment="before"):
    """The process dies at the nth passing of a durable step."""
    passed = []

    def observe(name, when):
        if (name, when) == (step, moment):
            passed.append(name)
            if len(passed) == nth:
                raise Died

    with observing(observe), pytest.raises(Died):
        yield
