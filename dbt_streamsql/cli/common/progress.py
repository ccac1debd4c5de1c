"""What a runner reports, as JSON lines for a log or as a live table on a terminal."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from typing import Any

import click
from rich.console import Console, Group
from rich.live import Live

from dbt_streamsql.cli.common.tables import as_table, console, plain
from dbt_streamsql.runner.events import Event, Tell

_HEADS = ("table", "mode", "rows", "seconds", "delay", "barrier", "")

QUIET_SECONDS = 60.0
"""In a log, epochs with nothing to do are reported this often."""


@contextmanager
def told_on(as_json: bool, out: Console | None = None) -> Iterator[Tell]:
    """The listener of a runner: a live table on a terminal, else JSON lines."""
    out = out or console()
    if as_json or not out.is_terminal:
        yield Lines().tell
        return
    board = Board()
    with Live(board.shown(), console=out, auto_refresh=False) as live:

        def tell(event: Event) -> None:
            board.hear(event)
            live.update(board.shown(), refresh=True)

        yield tell


class Lines:
    """One line of JSON per event."""

    def __init__(self) -> None:
        self._told = 0.0

    def tell(self, event: Event) -> None:
        idle = event.kind == "tick" and not _worth_telling(event.told)
        # Events from the runner of a target were filtered there.
        if idle and "target" not in event.told and event.at - self._told < QUIET_SECONDS:
            return
        self._told = event.at
        click.echo(json.dumps({"event": event.kind, "at": _time(event.at), **event.told}))


class Board:
    """The latest known state of each table, below that of the runner."""

    def __init__(self) -> None:
        self._heads = {"": "starting"}
        self._tables: dict[str, tuple[str, ...]] = {}

    def hear(self, event: Event) -> None:
        told = dict(event.told)
        target = told.pop("target", "")
        self._heads.pop("", None)
        head = f"{_time(event.at)} " + (f"{target}: " if target else "")
        if event.kind != "tick":
            self._heads[target] = f"{head}{event.kind} " + " ".join(map(str, told.values()))
            return
        self._heads[target] = (
            f"{head}barrier {told['barrier']}, {told['seconds']:.1f} s, {told['checked']} tables"
        )
        for name, table in told["tables"].items():
            delay = table["delay"]
            self._tables[name] = (
                table["mode"],
                f"+{table['rows_inserted']} -{table['rows_deleted']}",
                f"{table['seconds']:.2f}",
                "" if delay is None else f"{delay:.1f}",
                str(told["barrier"]),
                "",
            )
        for name, error in told["failed"].items():
            self._tables[name] = ("failed", "", "", "", "", error["message"].splitlines()[0])
        for name, done in told["sinks"].items():
            failed = done["failed"]
            why = failed["message"].splitlines()[0] if failed else done["target"]
            mode = "failed" if failed else "delivered"
            seconds = f"{done['seconds']:.2f}"
            self._tables[name] = (mode, "", seconds, "", str(done["barrier"]), why)
        for name, by in told["waiting"].items():
            self._tables[name] = ("waiting", "", "", "", "", f"for {by}")

    def shown(self) -> Group:
        rows = [(name, *cells) for name, cells in sorted(self._tables.items())]
        heads = [plain(self._heads[target]) for target in sorted(self._heads)]
        return Group(*heads, *([as_table(_HEADS, rows)] if rows else []))


def _worth_telling(told: Any) -> bool:
    return any(told[what] for what in ("tables", "failed", "waiting", "sinks"))


def _time(at: float) -> str:
    return datetime.fromtimestamp(at, timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
