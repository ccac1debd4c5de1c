"""Start, stop and inspect the warm engine of a warehouse."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from typing import TypeVar

from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.runtime.spark import jars
from dbt_streamsql.runtime.spark.java import find_java
from dbt_streamsql.runtime.spark.settings import SessionSettings
from dbt_streamsql.warm.discover import unfit
from dbt_streamsql.warm.locks import locked
from dbt_streamsql.warm.record import Place, Record, State

START_SECONDS = 600
"""A dead one is noticed at once; a busy machine takes minutes."""
STOP_SECONDS = 30
RELEASE_SECONDS = 5
_LOG_LINES = 8
Found = TypeVar("Found")


def start(settings: SessionSettings, idle_seconds: float) -> tuple[Record, bool]:
    """The running engine for `settings`, and whether this call started it.

    It ends by itself after `idle_seconds` without use (0: never). Errors: SERVER, and what an
    embedded session raises: JAVA_MISSING, JAR_UNAVAILABLE, JAR_CHECKSUM.
    """
    _check(settings)
    # Errors before Spark starts are raised here, not in the engine's log.
    find_java()
    jars.ensure(settings.jars)
    place = Place(settings)
    place.make()
    with _starting(place):
        with locked(place.folder / "alive") as free:
            pass
        if not free:
            # Another start was interrupted before its engine was up.
            record = _until(lambda: _alive(place), START_SECONDS)
        else:
            record = None
            place.withdraw()
        if record is not None:
            problem = unfit(record, settings)
            if problem:
                raise StreamSqlError("SERVER", "a warm engine is already running", given=problem)
            return record, False
        return _launch(place, settings, idle_seconds), True


def stop(settings: SessionSettings, *, force: bool = False) -> State | None:
    """End the engine of the warehouse; return its last state, or None when none runs.

    Error: SERVER_BUSY when it has sessions and `force` is not set.
    """
    _check(settings)
    place = Place(settings)
    record = _alive(place)
    if record is None:
        place.withdraw()
        return None
    state = place.state()
    if not force:
        # A client that has just ended is noticed a moment later.
        state = _until(lambda: _unused(place), RELEASE_SECONDS) or place.state()
        if state is not None and state.sessions:
            raise StreamSqlError(
                "SERVER_BUSY",
                "the warm engine is in use",
                given=f"{state.sessions} sessions, {state.statements} running statements",
                hint="wait for the runs to finish, or stop it with `--force`: the runs then fail",
            )
    os.kill(record.pid, signal.SIGTERM)
    if not _until(lambda: not record.alive, STOP_SECONDS) and record.alive:
        # With its Java, which may be stopped or out of memory.
        os.killpg(record.pid, signal.SIGKILL)
        _until(lambda: not record.alive, STOP_SECONDS)
        place.withdraw()
    return state


def status(settings: SessionSettings) -> tuple[Record, State | None, str] | None:
    """The running engine, what it does, and why this profile would not use it ('': it would)."""
    _check(settings)
    place = Place(settings)
    record = _alive(place)
    return None if record is None else (record, place.state(), unfit(record, settings))


def _check(settings: SessionSettings) -> None:
    if settings.method != "embedded":
        raise StreamSqlError(
            "SERVER",
            f"`method: {settings.method}` does not use a warm engine",
            allowed="`method: embedded`",
        )


def _launch(place: Place, settings: SessionSettings, idle_seconds: float) -> Record:
    request = {"settings": _as_texts(settings), "idle_seconds": idle_seconds}
    descriptor = os.open(place.log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as log:
        child = subprocess.Popen(
            [sys.executable, "-m", "dbt_streamsql.warm"],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            cwd=place.folder,
            text=True,
            # Ctrl-C at the terminal is not meant for it.
            start_new_session=True,
        )
    try:
        assert child.stdin is not None
        # Not as arguments or environment: the settings may hold passwords. A process that has
        # already died is reported below.
        with suppress(BrokenPipeError):
            child.stdin.write(json.dumps(request))
            child.stdin.close()
        record = _until(lambda: _alive(place), START_SECONDS, lambda: child.poll() is None)
    except BaseException:
        child.terminate()
        raise
    if record is None:
        child.kill()
        lines = place.log.read_text(errors="replace").splitlines()[-_LOG_LINES:]
        raise StreamSqlError(
            "SERVER",
            "the warm engine did not start",
            given="\n".join(lines) or "it printed nothing",
            hint=f"see the whole log in {place.log}; `dbt debug` checks each part",
        )
    return record


def _as_texts(settings: SessionSettings) -> dict[str, object]:
    body = asdict(settings)
    for key in ("catalog_properties", "spark_properties"):
        body[key] = dict(body[key])
    return body


@contextmanager
def _starting(place: Place) -> Iterator[None]:
    """One start at a time. Error: SERVER when another one does not end."""
    file, end = place.folder / "lock", time.monotonic() + 2 * START_SECONDS
    while True:
        with locked(file) as mine:
            if mine:
                yield
                return
        if time.monotonic() > end:
            raise StreamSqlError(
                "SERVER",
                "another start of the warm engine does not finish",
                given=f"its lock {file} has been held for {2 * START_SECONDS} seconds",
                hint="stop the `streamsql spark start` that hangs, then start again",
            )
        time.sleep(0.05)


def _alive(place: Place) -> Record | None:
    record = place.read()
    return record if record is not None and record.alive else None


def _unused(place: Place) -> State | None:
    state = place.state()
    return state if state is not None and not state.sessions else None


def _until(
    look: Callable[[], Found], seconds: float, going: Callable[[], bool] = lambda: True
) -> Found | None:
    """What `look` finds within `seconds`, while `going`."""
    end = time.monotonic() + seconds
    while True:
        go_on = going() and time.monotonic() < end
        found = look()
        if found or not go_on:
            return found or None
        time.sleep(0.05)
