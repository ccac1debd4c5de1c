"""What is staged outside barriers, by which owners, and which of these have died.

An owner is a process while it has something staged. Meanwhile it holds its own lock, which the
operating system or the server frees when it dies: so there is no timeout, and a living owner,
however slow, never loses its data.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import delete, insert, select

from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.meta.model import transitions
from dbt_streamsql.meta.model.records import Name, Text
from dbt_streamsql.meta.store.sql import lock, schema
from dbt_streamsql.meta.store.sql.database import Database


@dataclass(frozen=True)
class StagedRecord:
    """`token` names the staged table, `body` is its text, `owner` the process that stages it."""

    token: Name
    owner: Text
    table: Name
    body: Text


class SqlStagedLedger:
    """A `StagedLedger` in a database."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self._owner = ""
        self._held: lock.RunnerLock | None = None
        self._tokens: set[str] = set()
        self._changing = threading.Lock()

    @classmethod
    def adopt(cls, database: Database, owner: str) -> SqlStagedLedger | None:
        """Take over an owner's records if its lock is free; None when it is not, or has none.

        For a service that holds the locks of remote owners, and was down.
        """
        ledger = cls(database)
        mine = ledger._lock_of(owner)
        if not mine.try_acquire(owner):
            return None
        tokens = {record.token for record in ledger.records() if record.owner == owner}
        if not tokens:
            _let_go(mine)
            return None
        ledger._owner, ledger._held, ledger._tokens = owner, mine, tokens
        return ledger

    @property
    def owner(self) -> str:
        return self._owner if self._held is not None else ""

    def record(self, token: str, table: str, body: str) -> None:
        with self._changing:
            if self._held is None:
                self._held = self._new_owner()
            row = {"token": token, "owner": self._owner, "table_name": table, "body": body}
            with self.database.write() as connection:
                of = schema.staged_table
                known = select(of.c.owner).where(of.c.token == token)
                found = connection.execute(known).scalar()
                transitions.demand("stage a table", [transitions.new_token(token, found)])
                connection.execute(insert(of).values(row))
            self._tokens.add(token)

    def confirm(self, token: str) -> None:
        if all(record.token != token for record in self.records()):
            raise cleaned_up(token)

    def forget(self, token: str) -> None:
        of = schema.staged_table
        with self._changing:
            with self.database.write() as connection:
                connection.execute(delete(of).where(of.c.token == token))
            self._tokens.discard(token)
            if not self._tokens:
                self._end()

    def records(self) -> list[StagedRecord]:
        of = schema.staged_table
        with self.database.read() as connection:
            rows = connection.execute(select(of).order_by(of.c.token)).mappings().all()
        return [
            StagedRecord(row["token"], row["owner"], row["table_name"], row["body"])
            for row in rows
        ]

    @contextmanager
    def orphans(self) -> Iterator[list[StagedRecord]]:
        held: list[lock.RunnerLock] = []
        try:
            dead = set()
            for owner in sorted({record.owner for record in self.records()} - {self._owner}):
                theirs = self._lock_of(owner)
                if theirs.try_acquire(owner):
                    held.append(theirs)
                    dead.add(owner)
            held += self._unused()
            # Read again: the previous holder of the lock may have cleaned up.
            yield [record for record in self.records() if record.owner in dead] if dead else []
        finally:
            for theirs in held:
                _let_go(theirs)

    def close(self) -> None:
        with self._changing:
            self._end()

    def _new_owner(self) -> lock.RunnerLock:
        """A new name each time: a process that still checks an older name finds no records."""
        while True:
            self._owner = lock.new_owner()
            mine = self._lock_of(self._owner)
            # A sweep may be checking the new lock right now.
            if mine.try_acquire(self._owner):
                return mine

    def _end(self) -> None:
        held, self._held = self._held, None
        if held is not None:
            _let_go(held)

    def _unused(self) -> list[lock.RunnerLock]:
        """The lock files of owners that died without records."""
        file = self.database.file
        if file is None:
            return []
        locks = [lock.FileLock(path) for path in file.parent.glob(f"{file.name}.owner-*")]
        return [found for found in locks if found.try_acquire("")]

    def _lock_of(self, owner: str) -> lock.RunnerLock:
        name = hashlib.sha256(owner.encode()).digest()
        if self.database.file is not None:
            return lock.FileLock(Path(f"{self.database.file}.owner-{name.hex()[:16]}"))
        key = int.from_bytes(name[:8], "big", signed=True)
        return lock.AdvisoryLock(self.database.engine, lambda: owner, key)


def cleaned_up(token: str) -> StreamSqlError:
    return StreamSqlError(
        "META_CONFLICT",
        "another process cleaned up what this process staged",
        given=token,
        hint="run again; this process lost its connection to the store in between",
    )


def _let_go(held: lock.RunnerLock) -> None:
    if isinstance(held, lock.FileLock):
        # No process waits for an owner's lock, and its name is never reused.
        held.path.unlink(missing_ok=True)
    held.release()
