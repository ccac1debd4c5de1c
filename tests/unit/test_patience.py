"""Tests wait while somebody works, and give up with the stacks of all when nobody does."""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path

import pytest

from tests.support import patience

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/schedstat").exists(), reason="nobody can be seen working here"
)
WAITS = (
    "import time\ndef nothing_comes(): time.sleep(600)\nprint('up', flush=True)\nnothing_comes()"
)
WORKS = "import time\nend = time.process_time() + 1\nwhile time.process_time() < end: pass"


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "QUIET_SECONDS", 0.5)
    monkeypatch.setattr(patience, "WINDOW_SECONDS", 0.25)


def test_who_works_is_waited_for_longer_than_who_does_nothing() -> None:
    assert patience.run([sys.executable, "-c", WORKS]).returncode == 0


def test_a_process_that_does_nothing_is_ended_and_tells_where_it_stood() -> None:
    with pytest.raises(patience.Stuck) as stuck:
        patience.run([sys.executable, "-c", WAITS])
    told = str(stuck.value)
    assert "nothing has moved" in told
    assert "up\n" in told, "what it had said"
    assert "in nothing_comes" in told, "where it stood"
    assert "test_patience.py" in told, "where this process stood"


def test_a_thread_that_does_nothing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    # The other threads of the test run may have something to do.
    monkeypatch.setattr(patience.Watch, "_demand", lambda _: {})
    monkeypatch.setattr(patience.Watch, "_on_disk", lambda _: False)
    monkeypatch.setattr(patience, "_children", lambda _: [])
    freed = threading.Event()

    def waits_for_ever() -> None:
        freed.wait()

    thread = threading.Thread(target=waits_for_ever, name="the awaited", daemon=True)
    thread.start()
    with pytest.raises(patience.Stuck) as stuck:
        patience.join(thread)
    # Last, where a log that is cut in the middle still has it.
    _, named, last = str(stuck.value).rpartition("the awaited:")
    assert named
    assert "waits_for_ever" in last
    freed.set()
    patience.join(thread)


def test_what_is_seen_of_the_work_counts_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience.Watch, "_demand", lambda _: {})
    began, steps = time.monotonic(), iter(range(10**9))
    assert patience.until(lambda: time.monotonic() > began + 1.5, sign=lambda: next(steps))


def test_what_moves_and_gets_nowhere_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "LONGEST_SECONDS", 0.5)
    monkeypatch.setattr(patience, "_children", lambda _: [])
    steps = iter(range(10**9))
    with pytest.raises(patience.Stuck, match="though something moves"):
        patience.until(lambda: False, sign=lambda: next(steps))
