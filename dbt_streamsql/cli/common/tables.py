"""Text tables, for people: as wide as the terminal, or wide enough when there is none."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Iterable
from typing import Literal

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from dbt_streamsql.meta.inspect.topology_text import printable

_PIPED_WIDTH = 200
_NUMBERS = ("seconds", "delay", "barrier", "read", "rows", "greatest delay")


def console() -> Console:
    """Where to print."""
    stream = sys.stdout
    # At 80 columns, names would be cut off for readers of a pipe.
    piped = not stream.isatty() and "COLUMNS" not in os.environ
    return Console(file=stream, width=_PIPED_WIDTH if piped else None, highlight=False)


def print_table(
    at: Console,
    heads: Iterable[str],
    rows: Iterable[Iterable[str]],
    numbers: Collection[str] = _NUMBERS,
) -> None:
    """Print rows under their heads; those of `numbers` are right-aligned."""
    at.print(as_table(heads, rows, numbers))


def as_table(
    heads: Iterable[str],
    rows: Iterable[Iterable[str]],
    numbers: Collection[str] = _NUMBERS,
) -> Table:
    """What `print_table` prints."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for head in heads:
        number = head in numbers
        justify: Literal["left", "right"] = "right" if number else "left"
        table.add_column(plain(head), justify=justify, overflow="fold", no_wrap=number)
    for row in rows:
        table.add_row(*(plain(cell) for cell in row))
    return table


def plain(text: str) -> Text:
    """No markup and no control characters: names can be anything."""
    return Text(printable(text))
