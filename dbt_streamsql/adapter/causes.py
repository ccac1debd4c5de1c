"""From what Spark, Iceberg or the engine throw to the few lines that a user can act on."""

from __future__ import annotations

import re

from dbt_streamsql.errors import StreamSqlError

# An analyzed plan follows the sentence; the JVM's trace follows everything.
_TAILS = (
    re.compile(r";\s*\n'?[A-Z+].*", re.DOTALL),
    re.compile(r"\n\s*(JVM stacktrace:|\tat |at org\.|at java\.).*", re.DOTALL),
)
_CLASS = re.compile(r"^(?:[a-z_0-9]+\.)+([A-Z]\w*(?:Exception|Error)):\s*")
_GONE = ("StatusCode.UNAVAILABLE", "INVALID_HANDLE.SESSION_", "NO_ACTIVE_SESSION")
_PY4J = re.compile(r"^An error occurred while calling \S+\.?\n:\s*")


def cause_of(error: BaseException) -> str:
    """The cause in words, without Java's trace: the SQL excerpt that Spark points at stays."""
    if isinstance(error, StreamSqlError):
        return str(error)
    if any(sign in str(error) for sign in _GONE):
        return str(_gone(error))
    text = _PY4J.sub("", str(error)).strip()
    for tail in _TAILS:
        text = tail.sub("", text)
    causes = re.findall(r"^Caused by: (.*)$", str(error), re.MULTILINE)
    if causes and causes[-1] not in text:
        text += "\ncaused by " + _CLASS.sub(r"\1: ", causes[-1])
    return _CLASS.sub(r"\1: ", text).strip() or type(error).__name__


def _gone(error: BaseException) -> StreamSqlError:
    return StreamSqlError(
        "CONNECTION",
        "the Spark Connect server has gone",
        given=str(error).strip().splitlines()[0],
        hint="start it (a warm engine: `streamsql server start`), then run again: the next run "
        "finishes or undoes what this one left",
    )


def listed(problems: list[str]) -> str:
    """Several mistakes as one text, a line each."""
    if len(problems) == 1:
        return problems[0]
    return f"{len(problems)} problems" + "".join(f"\n    - {problem}" for problem in problems)
