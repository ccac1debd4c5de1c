"""Storage errors as clear messages: a full disk, a read-only one, a missing permission.

Spark, Iceberg and the catalog's database each throw their own exception for it, and only their
texts say what it was.

SQLite opens a file that it may not write as read-only, and Iceberg keeps that connection of its
catalog for good: after such an error the sessions reopen their catalogs.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from dbt_streamsql.errors import Place, StreamSqlError
from dbt_streamsql.plan.program import wide_keys

if TYPE_CHECKING:
    from dbt_streamsql.runtime.spark.session_pool import SessionPool

Call = TypeVar("Call", bound=Callable[..., object])

_KEPT_READ_ONLY = "SQLITE_READONLY"

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
        # All that Hadoop says about a folder that it cannot create.
        re.compile(r"^.*(Mkdirs failed to create).*$", re.MULTILINE),
        "a folder cannot be created in the storage of the warehouse",
        "check whether it is full, read-only or owned by another user",
    ),
)
_CLASS = re.compile(r"^.*[\w$](Exception|Error): ")
_SHOWN = 300
"""Characters that are shown of the cause."""


def refusal(error: BaseException) -> StreamSqlError | None:
    """The error to show for a storage error; None for any other error."""
    text = f"{error}\n{getattr(error, '_stackTrace', None) or ''}"
    for sign, what, remedy in _SIGNS:
        found = sign.search(text)
        if found is not None:
            return StreamSqlError(
                "STORAGE_REFUSED",
                what,
                given=_CLASS.sub("", found[0].strip())[:_SHOWN],
                hint=f"{remedy}, then run again. Committed barriers are safe; the next run "
                "completes or rolls back the unfinished one",
            )
    return None


_KEY = re.compile(rf"\[USER_RAISED_EXCEPTION\] {wide_keys.SIGN}\|(\w+)\|([^|]*)\|(.*)")


def branch_refusal(error: BaseException, place: Place) -> StreamSqlError | None:
    """The error to show when a branch of a wide table violates its key; None for any other
    error."""
    found = _KEY.search(str(error))
    if found is None:
        return None
    what, branch, key = found[1], found[2], found[3].split(" SQLSTATE")[0].strip()[:_SHOWN]
    if what == wide_keys.NO_KEY:
        return StreamSqlError(
            "PARTIAL_UPDATE_KEY",
            f"a row of branch `{branch}` has no value in its key",
            given=f"NULL in `{key}`",
            hint=f"leave such rows out of the branch: `WHERE {key} IS NOT NULL`",
            place=place,
        )
    return StreamSqlError(
        "PARTIAL_UPDATE_KEY",
        f"branch `{branch}` has several rows with the same key",
        given=key,
        allowed="one row per key, or a column in `sequence_by` that orders them",
        hint="group the branch by its key, or name one of its columns in `sequence_by`",
        place=place,
    )


def is_of_a_query(error: Exception) -> bool:
    """Whether the computation caused it: not the storage, MetaService or a cancellation, and not a
    deliberate refusal."""
    if isinstance(error, StreamSqlError):
        return error.code in {"INTERNAL", "PLAN_MISMATCH"}
    given_up = "cancelled" in str(error).lower()
    by_key = branch_refusal(error, Place()) is not None
    return not (isinstance(error, OSError) or given_up or by_key or refusal(error))


def brief(error: BaseException) -> str:
    """An error in one line that begins with its code or class."""
    if isinstance(error, StreamSqlError):
        return f"{error.code}: {error.message}"
    condition = error.getCondition() if isinstance(error, PySparkException) else None
    lines = str(error).strip().splitlines()
    if isinstance(error, Py4JError) and len(lines) > 1:
        del lines[0]  # which call it was; then what Java says
    text = next(iter(lines), "").removeprefix(f"[{condition}] ").removeprefix(": ")
    return f"{condition or type(error).__name__}: {text[:_SHOWN]}"


def translate_error(error: BaseException) -> BaseException:
    """The error for a caller: STORAGE_REFUSED, or the error itself."""
    if not isinstance(error, (Py4JError, PySparkException, OSError)):
        return error
    refused = refusal(error)
    if refused is None:
        return error
    refused.__cause__ = error
    return refused


def reopen(error: BaseException, sessions: SessionPool) -> None:
    """After an error from a read-only connection of the catalog: the next try gets new ones."""
    if isinstance(error, StreamSqlError) and _KEPT_READ_ONLY in error.given:
        sessions.reopen_catalogs()


def translate_storage_errors(call: Call) -> Call:
    """Wrap a method of an object with a `_warehouse`; storage errors become STORAGE_REFUSED."""

    @wraps(call)
    def run(self: Any, *args: object, **options: object) -> object:
        try:
            return call(self, *args, **options)
        except Exception as caught:  # noqa: BLE001 - it is translated
            error = translate_error(caught)
            reopen(error, self._warehouse.sessions)
            raise error  # noqa: B904 - it has its cause

    return run  # type: ignore[return-value]
