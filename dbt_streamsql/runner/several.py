"""Several targets at once: one runner process each, heard and stopped as one."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from dbt_streamsql.runner.events import Event, Tell
from dbt_streamsql.runner.patience import Backoff

_LOOKS_SECONDS = 0.2


@dataclass(frozen=True)
class Child:
    """The command for the runner of one target, which prints its events as lines of JSON.

    `environment` is the whole environment of the process.
    """

    command: Sequence[str]
    environment: Mapping[str, str] = field(repr=False)


class Several:
    """Runners by the name of their target; one that dies is restarted.

    Processes, because a Spark that exits must stop only its own target, and because dbt reads one
    project at a time in a process.
    """

    def __init__(self, children: Mapping[str, Child], once: bool, tell: Tell) -> None:
        self._children = children
        self._once = once
        self._tell = tell
        self._patience = Backoff(time.monotonic)
        self._running: dict[str, subprocess.Popen[str]] = {}
        self._codes: dict[str, int] = {}
        self._one_at_a_time = threading.Lock()

    def run(self, stop: threading.Event) -> int:
        """Run until `stop` is set, or once. Returns the highest exit code of the runners."""
        keepers = [
            threading.Thread(target=self._keep, args=(name, stop), name=f"streamsql-{name}")
            for name in self._children
        ]
        for keeper in keepers:
            keeper.start()
        told = False
        while any(keeper.is_alive() for keeper in keepers):
            try:
                if stop.is_set() and not told:
                    told = True
                    self._ask_to_stop()
                time.sleep(_LOOKS_SECONDS)
            except KeyboardInterrupt:
                # The second request: each runner undoes its current epoch.
                self._ask_to_stop()
        return max(self._codes.values(), default=0)

    def _keep(self, name: str, stop: threading.Event) -> None:
        while (process := self._start(name, stop)) is not None:
            assert process.stdout is not None
            for line in process.stdout:
                self._hear(name, line)
            code = process.wait()
            if self._once or stop.is_set():
                # A signal before it handled signals is a stop like any other.
                self._codes[name] = 0 if stop.is_set() and code == -signal.SIGTERM else abs(code)
                return
            pause = self._patience.failed(name)
            message = f"the runner of the target exited with code {code}; restarting it"
            self._say(
                Event(
                    "error",
                    time.time(),
                    {"target": name, "code": "", "message": message, "retry_in": round(pause, 1)},
                )
            )
            stop.wait(pause)

    def _start(self, name: str, stop: threading.Event) -> subprocess.Popen[str] | None:
        child = self._children[name]
        with self._one_at_a_time:
            if stop.is_set():
                return None
            self._running[name] = subprocess.Popen(  # noqa: S603 - this program itself
                child.command,
                env=dict(child.environment),
                stdout=subprocess.PIPE,
                text=True,
                # A Ctrl-C of the terminal reaches them once, through us.
                start_new_session=True,
            )
            return self._running[name]

    def _hear(self, name: str, line: str) -> None:
        try:
            told = json.loads(line)
            kind, at = told.pop("event"), told.pop("at").replace("Z", "+00:00")
            event = Event(kind, datetime.fromisoformat(at).timestamp(), {"target": name, **told})
        except (ValueError, KeyError, AttributeError, TypeError):
            # A library's output is not an event.
            return
        if kind == "tick":
            self._patience.succeeded([name])
        self._say(event)

    def _say(self, event: Event) -> None:
        with self._one_at_a_time:
            self._tell(event)

    def _ask_to_stop(self) -> None:
        with self._one_at_a_time:
            for process in self._running.values():
                if process.poll() is None:
                    process.terminate()
