"""Leases: a reader registers the barrier that it keeps reading, so that none of it is removed.

A lease ends when it is released or not renewed in time: a dead reader holds nothing forever. Times
are seconds since 1970 by the store's clock.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from sqlalchemy import Connection, delete, insert, select, update

from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.meta.model.records import Lease
from dbt_streamsql.meta.model.transitions import demand, leasable
from dbt_streamsql.meta.store.sql import schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from dbt_streamsql.meta.store.sql.database import Database

LEASE_SECONDS = 60.0
"""How long a lease lasts without renewal."""


class SqlLeases:
    """`Leases` in a database."""

    def __init__(self, database: Database, clock: Callable[[], float]) -> None:
        self._database = database
        self._clock = clock

    def take(self, owner: str, barrier: int, seconds: float = LEASE_SECONDS) -> Lease:
        now = self._clock()
        lease = Lease(uuid.uuid4().hex, owner, barrier, now, now + seconds)
        of, at = schema.lease, schema.barrier
        with self._database.write() as connection:
            kept = _kept_from(connection)
            state = connection.execute(select(at.c.state).where(at.c.id == barrier)).scalar()
            demand(f"lease barrier {barrier}", leasable(barrier, state, kept))
            connection.execute(insert(of).values(**vars(lease)))
        return lease

    def renew(self, lease: str, seconds: float = LEASE_SECONDS) -> float:
        of, now = schema.lease, self._clock()
        with self._database.write() as connection:
            _kept_from(connection)
            met = connection.execute(
                update(of)
                .where(of.c.id == lease, of.c.expires_at > now)
                .values(expires_at=now + seconds)
            ).rowcount
        if not met:
            raise StreamSqlError(
                "LEASE_LOST",
                "the reader's lease expired: the versions it reads may have been removed",
                given=f"lease {lease}",
                hint="read again: a new reader sees the newest barrier",
            )
        return now + seconds

    def give_back(self, lease: str) -> None:
        of, now = schema.lease, self._clock()
        with self._database.write() as connection:
            connection.execute(
                update(of).where(of.c.id == lease, of.c.expires_at > now).values(expires_at=now)
            )

    def live(self) -> list[Lease]:
        of = schema.lease
        with self._database.read() as connection:
            rows = connection.execute(
                select(of).where(of.c.expires_at > self._clock()).order_by(of.c.barrier, of.c.id)
            ).mappings()
            return [Lease(**row) for row in rows]

    def ended(self) -> list[str]:
        of, now = schema.lease, self._clock()
        over = of.c.expires_at <= now
        with self._database.read() as connection:
            if connection.execute(select(of.c.id).where(over).limit(1)).first() is None:
                return []
        with self._database.write() as connection:
            connection.execute(update(of).where(over).values(expires_at=0.0))
            return list(
                connection.execute(select(of.c.id).where(of.c.expires_at == 0.0)).scalars()
            )

    def forget(self, leases: Iterable[str]) -> None:
        of = schema.lease
        with self._database.write() as connection:
            connection.execute(delete(of).where(of.c.id.in_(list(leases))))


def _kept_from(connection: Connection) -> int:
    """The oldest barrier that can be held. It is fixed until the transaction ends: a writer that
    moves it has seen the lease, or the lease is refused. (SQLite has one writer at a time
    anyway.)"""
    asked = select(schema.runner.c.kept_from).with_for_update(read=True)
    return int(connection.execute(asked).scalar_one())
