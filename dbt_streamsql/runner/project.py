"""A dbt project as a runner follows it: its models run again when its files have changed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dbt_streamsql.adapter.dbt_commands import Invocation
from dbt_streamsql.errors import StreamSqlError

_FILES = (".sql", ".yml", ".yaml", ".py", ".md", ".csv")
_NOT_ITS_OWN = frozenset(("target", "logs", "warehouse", "node_modules", "venv", "__pycache__"))

State = frozenset[tuple[str, int, int]]
"""The path, the modification time (nanoseconds) and the size of each file."""


class DbtProject:
    """The maintained models of a project, or those that are selected; with `seeds`, its seeds."""

    def __init__(self, root: Path, invocation: Invocation, *, seeds: bool = False) -> None:
        self._root = root
        self._invocation = invocation
        self._seeds = seeds
        self._registered: State | None = None
        self._loaded: State | None = None
        """The files of the seeds that were loaded."""
        self._seen: State | None = None
        self._selected: frozenset[str] | None = None

    def changed(self) -> bool:
        """Whether files changed and have not changed again since the last check."""
        now = _state(self._root)
        quiet, self._seen = self._registered is None or now == self._seen, now
        return quiet and now != self._registered

    def register(self) -> dict[str, Any]:
        """Run the models: a new or changed definition applies from then on.

        Returns the number of models and which failed. Error: PROJECT_INVALID.
        """
        # First of all: a project that cannot be read is not read again until it changes.
        self._registered = self._seen = _state(self._root)
        data = _data(self._registered)
        seeds = self._seeds and data != self._loaded
        models = self._invocation.maintained()
        if self._invocation.select or self._invocation.exclude:
            self._selected = frozenset(models)
        try:
            run = models or seeds
            failed = self._invocation.run(sorted(models.values()), seeds=seeds) if run else {}
        except StreamSqlError as error:
            # The project was readable: the current tables or catalog may be the cause.
            failed = dict.fromkeys(models, f"{error.message}: {error.given}")
        if seeds and not failed:
            self._loaded = data
        return {"models": len(models), "failed": failed}

    def selected(self) -> frozenset[str] | None:
        """The ids of the selected models; None when nothing was selected, which means all."""
        return self._selected


def _data(state: State) -> State:
    """The files of seeds."""
    return frozenset(each for each in state if each[0].endswith(".csv"))


def _state(root: Path) -> State:
    return frozenset(_look(str(root)))


def _look(folder: str) -> Iterator[tuple[str, int, int]]:
    try:
        entries = list(os.scandir(folder))
    except FileNotFoundError:
        return
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            if entry.name not in _NOT_ITS_OWN and not entry.name.startswith("."):
                yield from _look(entry.path)
        elif entry.name.endswith(_FILES):
            try:
                at = entry.stat()
            except FileNotFoundError:
                continue
            yield entry.path, at.st_mtime_ns, at.st_size
