"""The loop: stand by or lead, follow the project, run an epoch, report, wait for the next."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Protocol

from py4j.protocol import Py4JNetworkError

from dbt_streamsql.engine import Engine
from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.runner import events
from dbt_streamsql.runner.events import Event, Tell
from dbt_streamsql.runner.leadership import SAYS_SECONDS, Leadership
from dbt_streamsql.runner.patience import Backoff
from dbt_streamsql.runtime.report import Report

BREATH_SECONDS = 0.3
"""Between two epochs, for any interval: a process that waits for the right to write checks for it
ten times a second."""
_SLOW_SECONDS, _SLOW_SHARE = 1.0, 1 / 3
"""A delivery from which on the next epoch does not wait for it: in seconds, and of the epoch."""

_EPOCH, _PROJECT = "the epoch itself", "the project"


class ProjectWatcher(Protocol):
    """A project whose models the runner keeps registered."""

    def changed(self) -> bool:
        """Whether it has to be registered again."""

    def register(self) -> dict[str, Any]:
        """Run the models that changed; return the outcome. Error: PROJECT_INVALID."""

    def selected(self) -> frozenset[str] | None:
        """The ids of the selected models; None for all that are registered."""


@dataclass(frozen=True)
class Schedule:
    """`interval`: seconds from the start of an epoch to that of the next one (0: no pause).

    `asks`: seconds between a standby's requests to lead; `says`: between a leader's heartbeats.
    """

    interval: float = 10.0
    once: bool = False
    asks: float = SAYS_SECONDS
    says: float = SAYS_SECONDS


class Runner:
    """One engine's runner. Call `run` in one thread; `stop` may be set from any."""

    def __init__(
        self, engine: Engine, pace: Schedule, tell: Tell, project: ProjectWatcher | None = None
    ) -> None:
        self._engine = engine
        self._pace = pace
        self._tell = tell
        self._project = project
        self._patience = Backoff(time.monotonic)
        self._overlaps = False
        """Whether the next epoch computes while sinks get what this one has published."""
        self._left = False
        """Whether the last epoch has left its barrier to the next one to deliver."""
        self._failed = self._unregistered = False
        self._told: dict[str, Any] = {}
        """What the newest registration of the project gave."""
        self._well = True
        """Whether the project, as it is, is registered."""

    def run(self, stop: threading.Event) -> bool:
        """Run until `stop` is set, or once. Returns whether the last epoch had no failure."""
        leadership = Leadership(self._engine.store.leaders, self._pace.says)
        try:
            while not stop.is_set():
                if not self._lead(leadership, stop):
                    break
                began = time.monotonic()
                self._follow()
                self._epoch()
                if self._pace.once:
                    break
                self._wait(began, stop)
            if self._left and leadership.mine:
                self._epoch(last=True)
            self._say("stopping")
        finally:
            leadership.close()
        return self._well and not self._failed

    def _lead(self, leadership: Leadership, stop: threading.Event) -> bool:
        """Stand by until this runner leads; False when it has to stop first."""
        if leadership.mine:
            return True
        told: str | None = None
        # It may also become the leader between two requests, through the heartbeat thread.
        while not leadership.mine:
            try:
                if leadership.seek():
                    break
                if leadership.leader != told:
                    told = leadership.leader
                    self._say("standby", leader=told)
                pause = self._pace.asks
            except StreamSqlError as error:
                pause = self._patience.failed(_EPOCH)
                self._say("error", **events.of_error(error), retry_in=round(pause, 1))
            if stop.wait(pause):
                return False
        self._say("leading", owner=leadership.owner)
        return True

    def _follow(self) -> None:
        if self._project is None:
            return
        again = self._unregistered and not self._patience.left(_PROJECT)
        if not again and not self._project.changed():
            return
        try:
            told = self._project.register()
        except StreamSqlError as error:
            # Earlier registrations continue; files that cannot be read must change first.
            self._well = False
            self._say("error", **events.of_error(error))
            return
        # A retry that fails as before is no news.
        same = again and told == self._told
        self._unregistered, self._told = bool(told["failed"]), told
        self._well = not self._unregistered
        if self._unregistered:
            # The current data of the tables may be the cause.
            self._patience.failed(_PROJECT)
        else:
            self._patience.succeeded([_PROJECT])
        if not same:
            self._say("project", **told)

    def _epoch(self, last: bool = False) -> None:
        began = time.monotonic()
        resting = self._patience.resting() - {_EPOCH, _PROJECT}
        self._left = self._overlaps and not last
        try:
            report = self._engine.advance(
                () if last else self._wanted(),
                keep_going=True,
                leave_out=resting,
                overlap=self._left,
            )
        except Exception as error:
            self._failed = True
            pause = self._patience.failed(_EPOCH)
            self._say("error", **events.of_error(error), retry_in=round(pause, 1))
            if isinstance(error, (ConnectionError, Py4JNetworkError)):
                raise StreamSqlError(
                    "CONNECTION",
                    "Spark exited; the runner cannot continue",
                    given=str(error),
                    hint="restart it, best with a supervisor that sends its stop signal only to "
                    "this process, not to its children (systemd: `KillMode=mixed`)",
                ) from error
            return
        if report.sinks:
            self._overlaps = self._has_slow_sinks(report, time.monotonic() - began)
        broken = {name for name, done in report.sinks.items() if done.error is not None}
        broken |= report.failed.keys()
        for name in broken:
            self._patience.failed(name)
        self._patience.succeeded({_EPOCH, *report.tables, *report.sinks} - broken)
        self._failed = bool(broken or resting)
        self._say("tick", **events.of_tick(report, time.monotonic() - began, resting))

    def _has_slow_sinks(self, report: Report, took: float) -> bool:
        """Whether an epoch follows at once and would wait long for deliveries. Short ones arrive
        sooner when nothing is computed at the same time."""
        slowest = max(done.seconds for done in report.sinks.values())
        at_once = not (self._pace.once or self._pace.interval)
        return at_once and slowest >= max(_SLOW_SECONDS, took * _SLOW_SHARE)

    def _wanted(self) -> Collection[str] | None:
        ids = self._project.selected() if self._project is not None else None
        return None if ids is None else self._engine.adapter_api.tables_of(ids)

    def _wait(self, began: float, stop: threading.Event) -> None:
        left = began + self._pace.interval - time.monotonic()
        stop.wait(max(left, self._patience.left(_EPOCH), BREATH_SECONDS))

    def _say(self, kind: str, **told: Any) -> None:
        self._tell(Event(kind, time.time(), told))
