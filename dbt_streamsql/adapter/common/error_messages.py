"""Turns errors of Spark, Iceberg and the engine into a few lines that a user can act on."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator

from dbt_streamsql.adapter.common.secrets import scrub
from dbt_streamsql.errors import StreamSqlError

# An analyzed plan follows the sentence; the JVM's trace follows everything.
_TAILS = (
    re.compile(r";\s*\n'?[A-Z+].*", re.DOTALL),
    re.compile(r"\n\s*(JVM stacktrace:|Driver stacktrace:|\tat |at org\.|at java\.).*", re.DOTALL),
    re.compile(r"\n== DataFrame ==.*", re.DOTALL),  # where our own code called Spark
)
_CLASS = re.compile(r"^(?:[a-z_0-9]+\.)+([A-Z]\w*(?:Exception|Error)):\s*")
_OUTER = re.compile(r"^(?:[\w$]+\.)+[A-Z]\w*(?:Exception|Error): (?=(?:[\w$]+\.)+[A-Z]\w*: )")
_TASK = re.compile(r"^.*?Job aborted due to stage failure: .*?executor \S+\): ", re.DOTALL)
_GONE = ("StatusCode.UNAVAILABLE", "INVALID_HANDLE.SESSION_", "NO_ACTIVE_SESSION")
_PY4J = re.compile(r"^An error occurred while calling \S+\.?\n:\s*")
_WORKER = re.compile(r".*Traceback \(most recent call last\):\n(.*\n)?(\S.*)", re.DOTALL)
_WORKER_LINE = re.compile(r'File "<python model>", line (\d+)')
# The place in Spark's message: of a parser's or analyzer's error, and of a runtime error.
_SPOTS = (
    re.compile(r"(?:;\s*|\s*\()line (?P<line>\d+),? pos (?P<column>\d+)\)?(?:\n.*)?$", re.DOTALL),
    re.compile(r"\n== SQL(?: of .*?)? \(line (?P<line>\d+), position \d+\) ==\n.*", re.DOTALL),
)
_HINTS = (
    ("PARSE_SYNTAX_ERROR", "correct the SQL there; a model must be one statement"),
    ("TABLE_OR_VIEW_NOT_FOUND", "check the name; use ref() so that dbt builds it first"),
    ("UNRESOLVED_COLUMN", "check the spelling, and whether the input still has the column"),
    ("UNRESOLVED_ROUTINE", "check the name; SHOW FUNCTIONS lists Spark's functions"),
    ("Couldn't find column", "`partition_by` and `clustered_by` must name columns of the query"),
    ("CAST_INVALID_INPUT", "correct the value or the type; try_cast returns NULL instead"),
    ("DATATYPE_MISMATCH", "cast one side to the type of the other"),
    (
        "a view is not supported by catalog",
        "this catalog has no views: use `ephemeral` or `table`",
    ),
    ('No FileSystem for scheme "s3', "add `connectors: [s3]` to the profile (docs/platforms.md)"),
    ("S3AFileSystem not found", "add `connectors: [s3]` to the profile (docs/platforms.md)"),
    ("No space left", "free some disk space; the table is unchanged"),
    ("Read-only file system", "make the `warehouse` folder writable for the user who runs dbt"),
    ("Permission denied", "make the `warehouse` folder writable for the user who runs dbt"),
    ("cancelled", "run the model again; the table is unchanged"),
    ("", "see the full trace in the debug log, logs/dbt.log"),
)


def cause_of(error: BaseException, statement: str = "", query: str = "") -> str:
    """The cause in words, its place in the `statement`, and what to do, without Java's trace.

    Lines are those of the `query`, the text of the model, if the statement has it.
    """
    if isinstance(error, StreamSqlError):
        return scrub(str(error))
    if any(sign in str(error) for sign in _GONE):
        return scrub(str(_gone(error)))
    text = _PY4J.sub("", str(error)).strip()
    for tail in _TAILS:
        text = tail.sub("", text)
    causes = re.findall(r"^Caused by: (.*)$", str(error), re.MULTILINE)
    if causes and causes[-1] not in text:
        text += "\ncaused by " + _CLASS.sub(r"\1: ", causes[-1])
    place = ""
    if in_worker := _WORKER.match(text):
        lines = _WORKER_LINE.findall(text)
        text = f"a function of the python model failed: {in_worker[2].splitlines()[-1]}"
        place = f"line {lines[-1]} of the model in target/compiled" if lines else ""
    for spot in _SPOTS:
        if statement and (found := spot.search(text)):
            text = text[: found.start()]
            place = _place(int(found["line"]), statement.strip(), query)
    text = _TASK.sub("", text)
    while _OUTER.match(text):
        text = _OUTER.sub("", text)
    text = _CLASS.sub(r"\1: ", text).strip() or type(error).__name__
    hint = next(hint for sign, hint in _HINTS if sign in text)
    lines = [text, *([f"  at: {place}"] if place else []), f"  do: {hint}"]
    return scrub("\n".join(lines))


def _place(line: int, statement: str, query: str) -> str:
    """`line` of the statement, as a line of the model if it lies there, with its text."""
    lines = statement.splitlines()
    shown = lines[line - 1].strip()[:120] if line <= len(lines) else ""
    start, whole = statement.find(query.strip()), "statement"
    before = statement[: max(start, 0)].count("\n")
    if query.strip() and start >= 0 and line > before:
        # The model's text may begin with empty lines, left by its `config`.
        line += query[: len(query) - len(query.lstrip())].count("\n") - before
        whole = "model in target/compiled"
    return f"line {line} of the {whole}: {shown}"


def trace_of(error: BaseException) -> str:
    """Everything known about an error, including Java's traces, for the debug log."""
    parts = traceback.format_exception(error)
    for link in _chain(error):
        # PySpark keeps the trace next to the message: embedded, and over Spark Connect.
        java = getattr(link, "_stackTrace", None) or getattr(link, "_stacktrace", None)
        if java:
            parts.append(f"\nJava:\n{java}")
    return scrub("".join(parts))


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    seen: list[BaseException] = []  # an error may be among its own causes
    while error is not None and not any(error is each for each in seen):
        yield error
        seen.append(error)
        error = error.__cause__


def _gone(error: BaseException) -> StreamSqlError:
    return StreamSqlError(
        "CONNECTION",
        "the Spark Connect server is gone",
        given=str(error).strip().splitlines()[0],
        hint="start it (for a warm engine: `streamsql spark start`), then run again: the next "
        "run completes or rolls back what this one left unfinished",
    )


def listed(problems: list[str]) -> str:
    """Several mistakes as one text, one per line."""
    if len(problems) == 1:
        return problems[0]
    return f"{len(problems)} problems" + "".join(f"\n    - {problem}" for problem in problems)
