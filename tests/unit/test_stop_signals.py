"""A loop that waits for signals, as a process of its own."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

from tests.support import patience

WAITS = """
from dbt_streamsql.stop_signals import stop_on_signals

with stop_on_signals() as stop:
    print("waits", flush=True)
    while not stop.wait(0):  # nearly always within the code of `wait`
        pass
"""
WORKS = """
import time
from dbt_streamsql.stop_signals import stop_on_signals

def interrupt():
    raise KeyboardInterrupt

with stop_on_signals(again=interrupt) as stop:
    print("works", flush=True)
    stop.wait()
    try:
        print("asked", flush=True)
        while True:
            time.sleep(0.01)
    except KeyboardInterrupt:
        print("undone", flush=True)
"""


def started(code: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)


def test_a_signal_that_comes_at_any_moment_of_a_wait_stops_it():
    for moment in range(20):
        with started(WAITS) as process:
            patience.line(process, lambda said: "waits" in said)
            time.sleep(moment / 10_000)
            process.send_signal(signal.SIGTERM if moment % 2 else signal.SIGINT)
            assert patience.wait(process) == 0


def test_the_second_signal_interrupts_the_work_that_goes_on():
    with started(WORKS) as process:
        patience.line(process, lambda said: "works" in said)
        process.send_signal(signal.SIGINT)
        patience.line(process, lambda said: "asked" in said)
        process.send_signal(signal.SIGTERM)
        assert patience.communicate(process)[0] == "undone\n"
        assert process.returncode == 0
