"""What the storage refuses, told in words: a full disk, a read-only one, a missing right.

Spark, Iceberg and the catalog's database each throw their own exception for it, and only their
texts say what it was.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import wraps
from typing import TypeVar

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from dbt_streamsql.errors import StreamSqlError

Call = TypeVar("Call", bound=Callable[..., object])

_SIGNS = (
    (
        re.compile(r"^.*(No space left on device|SQLITE_FULL|disk is full).*$", re.MULTILINE),
        "the storage of the warehouse is full",
        "free some space",
    ),
    (
        re.compile(r"^.*(Read-only file system|SQLITE_READONLY).*$", re.MULTILINE),
        "the storage of the warehouse is read-only",
        "make it writable",
    ),
    (
        # All that Hadoop says of a folder that it cannot make.
        re.compile(r"^.*(Mkdirs failed to create).*$", re.MULTILINE),
        "the storage of the warehouse takes no new folder",
        "look whether it is full, read-only, or another user's",
    ),
)
_CLASS = re.compile(r"^.*[\w$](Exception|Error): ")
_SHOWN = 300
"""Characters of the cause."""


def refusal(error: BaseException) -> StreamSqlError | None:
    """What a user is told of an error of the storage; None when it is of something else."""
    text = f"{error}\n{getattr(error, '_stackTrace', None) or ''}"
    for sign, what, remedy in _SIGNS:
        found = sign.search(text)
        if found is not None:
            return StreamSqlError(
                "STORAGE_REFUSED",
                what,
                given=_CLASS.sub("", found[0].strip())[:_SHOWN],
                hint=f"{remedy}, then run again: what had been committed is kept, and the next "
                "run finishes or undoes the rest",
            )
    return None


def telling(call: Call) -> Call:
    """The same call; what the storage refuses becomes STORAGE_REFUSED."""

    @wraps(call)
    def run(*args: object, **options: object) -> object:
        try:
            return call(*args, **options)
        except (Py4JError, PySparkException, OSError) as error:
            told = refusal(error)
            if told is None:
                raise
            raise told from error

    return run  # type: ignore[return-value]
