"""The right to write: the runner lock, the fence that every write checks, and the audit log."""

from __future__ import annotations

import time
import uuid
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, select, update

from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.meta.model import transitions
from dbt_streamsql.meta.model.records import Fence
from dbt_streamsql.meta.store import audit
from dbt_streamsql.meta.store.reader import SqlReader
from dbt_streamsql.meta.store.sql import lock, schema
from dbt_streamsql.meta.store.sql.database import Database

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from typing_extensions import Self


class SqlRunner(SqlReader):
    """Becoming and staying the one runner of a store. Thread-safe."""

    def __init__(
        self, database: Database, clock: Callable[[], float] = time.time, who: str = ""
    ) -> None:
        """`who` is named in the audit log ('': the runner's owner)."""
        super().__init__(database)
        self._clock = clock
        self._lock: lock.RunnerLock | None = None
        self._who = who

    @property
    def id(self) -> str:
        return self.database.id

    def acting_for(self, who: str) -> Self:
        """The same store with its own runner, whose entries in the audit log name `who`."""
        return type(self)(self.database, self._clock, who)

    def acquire(
        self, wait: bool = False, on_wait: lock.OnWait | None = None, owner: str = ""
    ) -> Fence:
        owner = owner or lock.new_owner()
        mine = self._new_lock()
        try:
            with self.database.errors():
                lock.acquire(mine, owner, wait, on_wait)
        except OSError as error:
            raise StreamSqlError(
                "META_UNREACHABLE",
                "cannot open the lock file next to the MetaService store",
                given=f"{self.database.file}.lock: {error.strerror}",
                hint="make the folder of the store writable",
            ) from error
        try:
            with self.database.write() as connection:
                before = self._stored(connection)
                token = before.token + 1
                connection.execute(update(schema.runner).values(token=token, owner=owner))
                if before.owner:
                    taken = {"fence": token, "from_fence": before.token, "from": before.owner}
                    self._enter(connection, owner, "take over", taken)
        except BaseException:
            mine.release()
            raise
        self._lock = mine
        return Fence(token, owner)

    def release(self, fence: Fence) -> None:
        of = schema.runner
        mine = (of.c.token == fence.token) & (of.c.owner == fence.owner)
        try:
            with self.database.write() as connection:
                connection.execute(update(of).where(mine).values(owner=""))
        finally:
            # Even if the store does not respond: a living process would wait for itself.
            self.let_go()

    def newest_barrier(self, fence: Fence) -> int:
        with self._fenced(fence) as connection:
            return int(connection.execute(select(schema.runner.c.last_barrier)).scalar_one())

    def let_go(self) -> None:
        held, self._lock = self._lock, None
        if held is not None:
            held.release()

    def resume(self, fence: Fence) -> bool:
        if self.fence() != fence:
            return False
        mine = self._new_lock()
        with self.database.errors():
            if not mine.try_acquire(fence.owner):
                return False
        # Check again: another runner may have come and gone in between.
        if self.fence() != fence:
            mine.release()
            return False
        self._lock = mine
        return True

    def holder(self) -> str:
        return self._new_lock().holder()

    def _new_lock(self) -> lock.RunnerLock:
        file = self.database.file
        if file is not None:
            return lock.FileLock(Path(f"{file}.lock"))
        key = lock.runner_key(self.database.schema)
        return lock.AdvisoryLock(self.database.engine, lambda: self.fence().owner, key)

    def note(self, fence: Fence, action: str, detail: Mapping[str, Any]) -> None:
        with self._fenced(fence) as connection:
            self._enter(connection, fence.owner, action, detail)

    @contextmanager
    def _fenced(self, fence: Fence) -> Iterator[Connection]:
        """A write transaction of the current runner."""
        with self.database.write() as connection:
            stored = self._stored(connection)
            transitions.demand("write", [transitions.same_fence(fence, stored)])
            connection.execute(update(schema.runner).values(state=uuid.uuid4().hex))
            yield connection

    def _enter(
        self, connection: Connection, owner: str, action: str, detail: Mapping[str, Any]
    ) -> None:
        audit.enter(connection, self._clock(), self._who or owner, action, detail)

    def _stored(self, connection: Connection) -> Fence:
        # the row lock (SQLite: the whole write transaction) serializes writers
        row = connection.execute(select(schema.runner).with_for_update()).mappings().one()
        return Fence(row["token"], row["owner"])
