"""The runner lock: one process at a time runs epochs on a warehouse, and a dead one holds nothing.

The operating system (SQLite) or the server (PostgreSQL) frees the lock when its holder dies, so
there is no timeout and no stale lock to remove. Late writes of a holder that lost the lock without
noticing are stopped by the fence (`Fence`), not by the lock.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import socket
import time
import zlib
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import SQLAlchemyError

from dbt_streamsql.errors import StreamSqlError

if TYPE_CHECKING:
    from pathlib import Path

OnWait = Callable[[str], None]
"""Called with the holder of the lock (`host:pid:random`, or '' when unknown)."""

POLL_SECONDS = 0.1
ADVISORY_KEY = 0x73747265616D
"""The PostgreSQL advisory lock of a store ('stream' in ASCII); scoped to the database."""


class RunnerLock(Protocol):
    """Mutual exclusion between runners; not re-entrant, and one object is one holder."""

    def try_acquire(self, owner: str) -> bool: ...
    def holder(self) -> str: ...
    def release(self) -> None: ...


def new_owner() -> str:
    """`host:pid:random`: the last part separates runners of one process, or of a reused pid."""
    return f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"


class FileLock:
    """An exclusive `flock` on a file that also holds the owner's name, for the busy message.

    A file that lost its name between opening and locking counts as held: others would not see it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd: int | None = None

    def try_acquire(self, owner: str) -> bool:
        fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return False
        except BaseException:
            os.close(fd)
            raise
        if not _names(self.path, fd):
            os.close(fd)
            return False
        os.ftruncate(fd, 0)
        os.pwrite(fd, owner.encode(), 0)
        self._fd = fd
        return True

    def holder(self) -> str:
        try:
            return self.path.read_text(encoding="utf-8").strip()
        except OSError:
            return ""

    def release(self) -> None:
        fd, self._fd = self._fd, None
        if fd is not None:
            os.ftruncate(fd, 0)
            # unlock by name: a forked child may still have the file open
            fcntl.flock(fd, fcntl.LOCK_UN)
            os.close(fd)


class AdvisoryLock:
    """A PostgreSQL session lock on its own connection."""

    def __init__(self, engine: Engine, holder: Callable[[], str], key: int) -> None:
        self._engine = engine
        self._holder = holder
        self._key = key
        self._connection: Connection | None = None

    def try_acquire(self, owner: str) -> bool:  # noqa: ARG002 - the fence's row names the owner
        connection = self._engine.connect().execution_options(isolation_level="AUTOCOMMIT")
        try:
            taken: bool = connection.execute(
                text("SELECT pg_try_advisory_lock(:key)"), {"key": self._key}
            ).scalar_one()
        except BaseException:
            connection.close()
            raise
        if not taken:
            connection.close()
            return False
        self._connection = connection
        return True

    def holder(self) -> str:
        return self._holder()

    def release(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            # the server notices a closed session only later, so unlock explicitly; a broken
            # connection no longer has a lock
            with suppress(SQLAlchemyError):
                connection.execute(text("SELECT pg_advisory_unlock(:key)"), {"key": self._key})
            connection.invalidate()
            connection.close()


def runner_key(schema: str) -> int:
    """The advisory lock of a store's runner: one for each schema of a database."""
    return ADVISORY_KEY + (zlib.crc32(schema.encode()) << 8 if schema else 0)


def _names(path: Path, fd: int) -> bool:
    """Whether the path still refers to the opened file."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(fd))  # noqa: PTH116 - a pair of one kind
    except FileNotFoundError:
        return False


def acquire(lock: RunnerLock, owner: str, wait: bool, on_wait: OnWait | None) -> None:
    """Take `lock`. `wait=False`: WAREHOUSE_BUSY when it is held, naming host and pid.

    `wait=True`: wait until it is free; `on_wait` is called first and whenever the holder changes.
    """
    told: str | None = None
    while not lock.try_acquire(owner):
        holder = lock.holder()
        if not wait:
            host, _, rest = holder.partition(":")
            pid = rest.partition(":")[0]
            raise StreamSqlError(
                "WAREHOUSE_BUSY",
                "another process is running an epoch on this warehouse",
                given=f"process {pid} on host {host}" if pid else "a process that just started",
                allowed="one runner at a time",
                hint="wait until it finishes; if it hangs, kill it: its lock is released at once "
                "and the next run cleans up",
            )
        if holder != told and on_wait is not None:
            on_wait(holder)
            told = holder
        time.sleep(POLL_SECONDS)
