"""What stops the clock of a test stops no server beside it."""

from __future__ import annotations

import asyncio
import time

import freezegun

from tests.support import stopped_clock


def test_an_event_loop_goes_on_while_the_clock_stands():
    stopped_clock.spare_event_loops()
    loop = asyncio.new_event_loop()
    before = loop.time()
    with freezegun.freeze_time("2025-01-03"):
        frozen, inside = time.monotonic(), loop.time()
    after = loop.time()
    loop.close()
    assert before <= inside <= after
    assert not before <= frozen <= after
