"""Runners of several targets: told as one, stopped as one, and one that dies is started again."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

import pytest

from dbt_streamsql.runner import patience as rests
from dbt_streamsql.runner.events import Event
from dbt_streamsql.runner.several import Child, Several
from tests.support import patience

SAYS = """
import json, signal, sys, time

def say(kind, **told):
    print(json.dumps({"event": kind, "at": "1970-01-01T00:00:07.500Z", **told}), flush=True)

"""
STAYS = (
    SAYS
    + """
def asked(number, frame):
    say("stopping")
    sys.exit(0)

signal.signal(signal.SIGTERM, asked)
say("leading", owner="me")
print("a line of a library", flush=True)
time.sleep(60)
"""
)
DIES_ONCE = (
    SAYS
    + """
import pathlib
marked = pathlib.Path(sys.argv[1])
say("leading", owner=str(marked.exists()))
if not marked.exists():
    marked.touch()
    sys.exit(2)
"""
    + STAYS
)


def child(code: str, *words: str) -> Child:
    return Child((sys.executable, "-c", code, *words), dict(os.environ))


class Running:
    """`Several` in a thread of its own, and what it told."""

    def __init__(self, children: dict[str, Child], *, once: bool = False) -> None:
        self.told: list[Event] = []
        self.stop = threading.Event()
        self.code: int | None = None
        several = Several(children, once, self.told.append)

        def run() -> None:
            self.code = several.run(self.stop)

        self.thread = threading.Thread(target=run)
        self.thread.start()

    def heard(self, kind: str, target: str, times: int = 1) -> Event:
        def found() -> list[Event]:
            told = [e for e in self.told if (e.kind, e.told["target"]) == (kind, target)]
            return told[times - 1 :]

        return patience.until(found, sign=lambda: len(self.told))[0]

    def end(self) -> int | None:
        self.stop.set()
        patience.join(self.thread)
        return self.code


@pytest.fixture
def runs():
    running: list[Running] = []

    def start(*arguments, **options):
        running.append(Running(*arguments, **options))
        return running[-1]

    yield start
    for each in running:
        each.end()


def test_what_each_tells_comes_with_its_target_and_all_stop_when_asked(runs) -> None:
    several = runs({"sales": child(STAYS), "stock": child(STAYS)})
    assert several.heard("leading", "sales").at == 7.5
    assert several.heard("leading", "stock").told == {"target": "stock", "owner": "me"}
    assert several.end() == 0
    several.heard("stopping", "sales")
    several.heard("stopping", "stock")
    assert {event.kind for event in several.told} == {"leading", "stopping"}


def test_one_that_dies_is_told_and_started_again_while_the_others_go_on(
    runs, tmp_path: Path
) -> None:
    several = runs({"sales": child(DIES_ONCE, str(tmp_path / "died")), "stock": child(STAYS)})
    error = several.heard("error", "sales").told
    assert "exited with code 2" in error["message"]
    assert 0 < error["retry_in"] <= 1
    assert several.heard("leading", "sales", times=2).told["owner"] == "True"
    assert several.end() == 0
    assert [e.kind for e in several.told if e.told["target"] == "stock"] == ["leading", "stopping"]


def test_once_ends_with_the_worst_exit_code(runs) -> None:
    several = runs({"sales": child("raise SystemExit(1)"), "stock": child("")}, once=True)
    patience.join(several.thread)
    assert several.code == 1


def test_a_target_that_rests_does_not_hold_back_the_end(runs, monkeypatch) -> None:
    # It rests for longer than anybody waits for the end of the thread.
    monkeypatch.setattr(rests, "FIRST_SECONDS", 1e6)
    monkeypatch.setattr(rests, "LONGEST_SECONDS", 1e6)
    several = runs({"sales": child("raise SystemExit(2)")})
    assert several.heard("error", "sales").told["retry_in"] > patience.LONGEST_SECONDS
    assert several.end() == 0
