"""Which of several runners of a store is active; the others stand by.

Leading only saves the other runners work: mutual exclusion is the job of the runner lock and its
fence. A leader that does not renew often enough is succeeded.
Times are seconds since 1970 by the store's clock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import delete, insert, select

from dbt_streamsql.meta.model.records import Leader
from dbt_streamsql.meta.store.sql import schema

if TYPE_CHECKING:
    from collections.abc import Callable

    from dbt_streamsql.meta.store.sql.database import Database

LEADER_SECONDS = 6.0
"""How long a silent leader stays the leader."""


class SqlLeaders:
    """`Leaders` in a database."""

    def __init__(self, database: Database, clock: Callable[[], float]) -> None:
        self._database = database
        self._clock = clock

    def lead(self, owner: str, seconds: float = LEADER_SECONDS) -> Leader:
        of, now = schema.leader, self._clock()
        with self._database.write() as connection:
            # The row that every writer locks: candidates are serialized.
            connection.execute(select(schema.runner.c.token).with_for_update())
            row = connection.execute(select(of)).mappings().first()
            if row is not None and row["owner"] != owner and row["expires_at"] > now:
                return Leader(**row)
            leader = Leader(owner, now + seconds)
            connection.execute(delete(of))
            connection.execute(insert(of).values(**vars(leader)))
            return leader

    def resign(self, owner: str) -> None:
        with self._database.write() as connection:
            connection.execute(delete(schema.leader).where(schema.leader.c.owner == owner))

    def leader(self) -> Leader | None:
        of = schema.leader
        with self._database.read() as connection:
            live = select(of).where(of.c.expires_at > self._clock())
            row = connection.execute(live).mappings().first()
            return Leader(**row) if row is not None else None
