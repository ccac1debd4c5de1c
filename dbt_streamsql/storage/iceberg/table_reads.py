"""How often this process reads rows from the files of tables. Scans of Spark are counted by it."""

from __future__ import annotations

from collections import Counter
from contextvars import ContextVar

from dbt_streamsql.quoting import TableName

_current: ContextVar[Counter[str] | None] = ContextVar("table_reads", default=None)


class TableReads:
    """Counts, by table, what this thread reads from now on until `stop`."""

    def __init__(self) -> None:
        self._found: Counter[str] = Counter()
        self._token = _current.set(self._found)

    def stop(self) -> Counter[str]:
        _current.reset(self._token)
        return self._found


def note(name: TableName) -> None:
    """Rows of the table were read once more."""
    found = _current.get()
    if found is not None:
        found[str(name)] += 1
