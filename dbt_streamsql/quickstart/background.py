"""Processes that go on when a command has ended, by their names.

<project>/.quickstart/
    <name>.json   the identity of the process, and its port if it has one
    <name>.log    what it says
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.warm import process
from dbt_streamsql.warm.locks import locked

STOP_SECONDS = 60
"""A runner ends with its epoch."""
_LOG_LINES = 8


@dataclass(frozen=True)
class Running:
    """One process. `identity` as of `warm.process`; `port` 0: it listens nowhere."""

    identity: str
    port: int = 0

    @property
    def alive(self) -> bool:
        return process.runs(self.identity)


class Background:
    """The processes of one project."""

    def __init__(self, project: Path) -> None:
        self._project = project
        self._folder = project / ".quickstart"

    def find(self, name: str) -> Running | None:
        """The process of that name, if it runs."""
        try:
            found = Running(**json.loads(self._record(name).read_text()))
        except (OSError, ValueError, TypeError):
            return None
        return found if found.alive else None

    def start(
        self, name: str, command: Sequence[str], port: int = 0, **environment: str
    ) -> Running:
        """Start the process in the folder of the project; its earlier log is replaced.

        Variables that choose another project, profile or store do not reach it.
        """
        self._folder.mkdir(exist_ok=True)
        with self.log(name).open("w") as log:
            child = subprocess.Popen(  # noqa: S603 - a command of this package
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._project,
                env={**_neutral(os.environ), **environment},
                # Ctrl-C at the terminal is not meant for it.
                start_new_session=True,
            )
        started = Running(process.identity(child.pid), port)
        self._record(name).write_text(json.dumps(asdict(started)))
        return started

    def stop(self, name: str) -> bool:
        """Ask the process to end and wait until it has; whether it was running."""
        found = self.find(name)
        if found is not None:
            pid = int(found.identity.partition("-")[0])
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
            end = time.monotonic() + STOP_SECONDS
            while found.alive and time.monotonic() < end:
                time.sleep(0.05)
            if found.alive:
                # With what it has started.
                with suppress(ProcessLookupError):
                    os.killpg(pid, signal.SIGKILL)
        self._record(name).unlink(missing_ok=True)
        return found is not None

    @property
    def exists(self) -> bool:
        """Whether a quickstart has started anything here."""
        return self._folder.is_dir()

    @contextmanager
    def starting(self) -> Iterator[bool]:
        """Whether this is the only process that starts something here, as long as the block
        runs."""
        self._folder.mkdir(exist_ok=True)
        with locked(self._folder / "lock") as mine:
            yield mine

    def log(self, name: str) -> Path:
        return self._folder / f"{name}.log"

    def problem(self, name: str) -> StreamSqlError:
        """The error of a process that has ended, or has not done in time what it is for."""
        what = "does not get ready" if self.find(name) is not None else "has ended"
        lines = self.log(name).read_text(errors="replace").splitlines()[-_LOG_LINES:]
        return StreamSqlError(
            "PROJECT_INVALID",
            f"the {name} {what}",
            given="\n".join(lines) or "it printed nothing",
            hint=f"see the whole log in {self.log(name)}; `dbt debug` checks each part",
        )

    def _record(self, name: str) -> Path:
        return self._folder / f"{name}.json"


def _neutral(environment: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value
        for name, value in environment.items()
        if not name.startswith("DBT_") and name != "STREAMSQL_STORE"
    }
