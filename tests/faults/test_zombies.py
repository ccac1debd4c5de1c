"""A stopped process is not a dead one: it keeps its lock, and nothing takes it away by a time-out."""

from __future__ import annotations

import logging
import os
import signal
import threading

import pytest

from dbt_streamsql.errors import StreamSqlError
from tests.faults import fault_scenario as scenario
from tests.faults.fault_world import wait_until_stopped
from tests.support import patience

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("last", [signal.SIGCONT, signal.SIGKILL])
def test_a_second_run_waits_for_a_stopped_one_and_says_for_whom(world, caplog, last):
    world.restore("start")
    process = world.start("epoch", "table.processed", "before", 2, sends=signal.SIGSTOP)
    wait_until_stopped(process)
    engine = world.engine()
    try:
        with pytest.raises(StreamSqlError) as caught:
            engine.store.acquire(wait=False)
        assert caught.value.code == "WAREHOUSE_BUSY"
        assert str(process.pid) in caught.value.given
        begun = threading.Thread(target=engine.begin, name="second run")
        with caplog.at_level(logging.WARNING, "dbt_streamsql"):
            begun.start()
            begun.join(3)
        assert begun.is_alive(), "the stopped process lost its lock"
        assert f":{process.pid}:" in caplog.text
        assert world.tables() == world.before
        os.kill(process.pid, last)
        world.ends(process)
        patience.join(begun)
        assert world.tables() == (world.after if last == signal.SIGCONT else world.before)
        engine.abort()
        scenario.epoch(engine)
        engine.sweep()
        assert world.tables() == world.after
        assert world.leftovers(engine) == []
    finally:
        process.kill()
        process.wait()
        engine.close()
