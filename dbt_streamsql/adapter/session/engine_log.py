"""While dbt is at work, what the engine logs is an event of dbt: in its log and its format."""

from __future__ import annotations

import logging

from dbt.adapters.events.logging import AdapterLogger

_LOGGER = logging.getLogger("dbt_streamsql")
_TELL = AdapterLogger("StreamSQL")
_LEVELS = (
    (logging.ERROR, _TELL.error),
    (logging.WARNING, _TELL.warning),
    (logging.INFO, _TELL.info),
    (logging.NOTSET, _TELL.debug),
)


class _ToDbt(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        tell = next(tell for level, tell in _LEVELS if record.levelno >= level)
        tell(self.format(record))


_HANDLER = _ToDbt()


def to_dbt() -> None:
    """From here on until `as_before`; Python would print each record a second time."""
    _LOGGER.addHandler(_HANDLER)
    _LOGGER.propagate = False


def as_before() -> None:
    """The command has ended: Python's own handlers have the records again."""
    _LOGGER.removeHandler(_HANDLER)
    _LOGGER.propagate = True
