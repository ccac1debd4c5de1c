"""What a benchmark says while it runs: a line with the seconds since its start."""

from __future__ import annotations

import time

from rich.console import Console


class Progress:
    """Call it with a line to say; `seconds` are those since it was made."""

    def __init__(self, console: Console) -> None:
        self._console, self._started = console, time.monotonic()

    def __call__(self, text: str) -> None:
        self._console.print(f"[dim]{self.seconds:6.0f} s  {text}[/dim]", highlight=False)

    @property
    def seconds(self) -> int:
        return round(time.monotonic() - self._started)
