"""Records with their sequence, and whether they delete the row of their key, or all rows."""

from __future__ import annotations

from dbt_streamsql.plan.algebra.schema import HIDDEN_PREFIX
from dbt_streamsql.runtime.ingest.stream_definition import BAD, SEQUENCE, Stream

DELETED = f"{HIDDEN_PREFIX}deleted"
CLEARED = f"{HIDDEN_PREFIX}cleared"
_SHOWN = 200
"""Characters that are shown of a bad record."""

CLEARS = f"coalesce({CLEARED}, false)"
GONE = f"(coalesce({DELETED}, false) OR {CLEARS})"


def extended(stream: Stream, select: str) -> str:
    """The model's query with each record's sequence, and whether it deletes its key or all."""
    return (
        f"SELECT *, {stream.sequence_by or '0'} AS {SEQUENCE}, "
        f"{stream.delete_when or 'false'} AS {DELETED}, "
        f"{stream.truncate_when or 'false'} AS {CLEARED} FROM ({select})"
    )


def or_fail(condition: str, message: str) -> str:
    """The condition; where it is not true, the query fails with the expression `message`."""
    return f"coalesce({condition} OR raise_error({message}), true)"


def bad_record(at: str, problem: str, raw: str) -> str:
    """The error text for a record that cannot be read; all arguments are expressions."""
    shown = f"left(coalesce({raw}, 'NULL'), {_SHOWN})"
    return f"concat('{BAD}', {at}, ': ', {problem}, ': ', {shown})"


def broadcast(name: str, few: bool) -> str:
    """A hint to broadcast one side of a join, when it has few rows."""
    return f"/*+ BROADCAST({name}) */" if few else ""
