"""Which part of the ledger stays readable, and which rows are no longer needed.

A committed barrier can be read from `kept_from` on, which only increases. At a barrier each
table has the version of its newest row at or before that barrier: so the row in force at
`kept_from` stays, however old it is, and older rows are removed.

First `kept_from` moves, then what the barriers below it refer to is removed, then their rows: a
process that dies in between leaves rows that show the next one where to look.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, cast

from pydantic import Field
from sqlalchemy import (
    Connection,
    Select,
    Table,
    and_,
    case,
    delete,
    exists,
    func,
    or_,
    select,
    update,
)

from dbt_streamsql.meta.model.records import Int64, Real
from dbt_streamsql.meta.store.sql import schema

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, Delete, ScalarSelect

DAY = 86_400.0
ENTRIES = 10_000
"""The newest lines of the audit log, which always stay."""
DELIVERING = 7 * DAY
"""How long undelivered changes of a sink are kept after its target stopped accepting them."""
ROWS = 2_000
"""The maximum number of versions that one call removes, so that no other writer waits long."""


@dataclass(frozen=True)
class Retention:
    """A barrier stays readable that ended within `seconds` and is among the newest `barriers`.

    The newest one always does, and one that is leased or that a sink goes on from, with all
    after it.
    """

    seconds: Annotated[Real, Field(ge=0)] = 7 * DAY
    barriers: Annotated[Int64, Field(ge=1)] = 300


@dataclass(frozen=True)
class Outlook:
    """What a retention would let go now: the `barriers` from `kept_from` to below `keep_from`.

    `overdue`: for how many seconds the oldest of them has been older than the retention says;
    negative when it is not, and only their number is too great.
    """

    kept_from: Int64
    keep_from: Int64
    barriers: Int64 = 0
    overdue: Real = 0.0

    def due(self, together: int) -> bool:
        """Whether cleaning up is worth it after a run: for that many barriers, or for one that has
        been due for a day."""
        return self.barriers >= together or (self.barriers > 0 and self.overdue >= DAY)


@dataclass(frozen=True)
class Forgotten:
    """Rows of the ledger that went. `more`: there were too many for one call."""

    barriers: Int64 = 0
    versions: Int64 = 0
    pins: Int64 = 0
    entries: Int64 = 0
    more: bool = False

    def __add__(self, other: Forgotten) -> Forgotten:
        return Forgotten(
            self.barriers + other.barriers,
            self.versions + other.versions,
            self.pins + other.pins,
            self.entries + other.entries,
            other.more,
        )


def outlook(connection: Connection, retention: Retention, now: float) -> Outlook:
    """Takes one statement while there is nothing to drop."""
    at, lease = schema.barrier, schema.lease
    committed = select(at.c.id).where(at.c.state == "COMMIT")
    newest = committed.order_by(at.c.id.desc()).limit(1)
    young = committed.where(at.c.ended_at >= now - retention.seconds).order_by(at.c.id).limit(1)
    held = select(func.min(lease.c.barrier)).where(lease.c.expires_at > now)
    asked = (
        select(schema.runner.c.kept_from),
        newest,
        young,
        newest.offset(retention.barriers - 1),
        held,
        _delivering(now),
    )
    found = connection.execute(select(*(query.scalar_subquery() for query in asked))).one()
    kept, last, first_young, first_few, *first_held = cast("tuple[int, ...]", found)
    if last is None:
        return Outlook(kept, kept)
    wanted = max(last if first_young is None else first_young, first_few or 0)
    keep = min(wanted, *(barrier for barrier in (*first_held, wanted) if barrier is not None))
    gone = and_(at.c.state == "COMMIT", at.c.id >= kept, at.c.id < keep)
    counted = select(func.count().label("all"), func.min(at.c.ended_at).label("first")).where(gone)
    going = connection.execute(counted).mappings().one() if keep > kept else {"all": 0}
    if not going["all"]:
        return Outlook(kept, kept)
    return Outlook(kept, keep, going["all"], now - retention.seconds - going["first"])


def _delivering(now: float) -> Select[Any]:
    """The first barrier that some sink still has to deliver."""
    of, head = schema.sink, schema.head
    since = case((of.c.delivered > 0, of.c.delivered), else_=of.c.under_way)
    newer = exists().where(head.c.table_name == of.c.table_name, head.c.barrier > of.c.delivered)
    return select(func.min(since)).where(
        since > 0,
        or_(of.c.under_way > 0, newer),
        or_(of.c.failing_since.is_(None), of.c.failing_since > now - DELIVERING),
    )


def move(connection: Connection, retention: Retention, now: float) -> int:
    """Move `kept_from` as the retention requires; returns its new value."""
    found = outlook(connection, retention, now)
    if found.barriers:
        connection.execute(update(schema.runner).values(kept_from=found.keep_from))
        of = schema.lease
        # They have ended. A clock that goes back must not revive them.
        connection.execute(update(of).where(of.c.barrier < found.keep_from).values(expires_at=0.0))
    return found.keep_from


def surplus(connection: Connection, barrier: int) -> dict[str, int]:
    """The number of versions of each table that were superseded at or before the barrier."""
    of = schema.version
    old = and_(of.c.barrier < barrier, ~_in_force(of, barrier))
    counted = select(of.c.table_name, func.count().label("rows")).where(old)
    rows = connection.execute(counted.group_by(of.c.table_name)).mappings()
    return {row["table_name"]: row["rows"] for row in rows}


def forget(connection: Connection, retention: Retention, now: float) -> Forgotten:
    """Remove rows that are behind `kept_from`."""
    kept: int = connection.execute(select(schema.runner.c.kept_from)).scalar_one()
    of, pins, at = schema.version, schema.barrier_input, schema.barrier
    superseded = and_(of.c.barrier < kept, ~_in_force(of, kept))
    cut: int | None = connection.execute(
        select(of.c.barrier).where(superseded).order_by(of.c.barrier).offset(ROWS).limit(1)
    ).scalar()
    upto = kept if cut is None else cut
    versions = _count(connection, delete(of).where(superseded, of.c.barrier < upto))
    old_pins = _count(
        connection, delete(pins).where(pins.c.barrier < upto, ~_in_force(pins, kept))
    )
    spans = schema.position
    connection.execute(delete(spans).where(spans.c.barrier < upto))
    # What a reader holds has tags until the record of its lease is removed.
    held = connection.execute(select(exists(select(schema.lease.c.id)))).scalar_one()
    if cut is None and not held:
        dropped, unread = _unread(connection, kept)
        versions += dropped
        old_pins += unread
    files = schema.change_file
    barriers = _count(
        connection,
        delete(at).where(
            at.c.id < upto,
            *(~exists().where(child.c.barrier == at.c.id) for child in (of, pins, files)),
        ),
    )
    entries = _count(connection, _old_entries(now - retention.seconds))
    return Forgotten(barriers, versions, old_pins, entries, cut is not None)


def _in_force(of: Table, barrier: int) -> ColumnElement[bool]:
    """Whether a row is the newest committed one of its table at or before the barrier."""
    other, at = of.alias(), schema.barrier
    newest: ScalarSelect[Any] = (
        select(other.c.barrier)
        .join(at, at.c.id == other.c.barrier)
        .where(
            other.c.table_name == of.c.table_name,
            other.c.barrier <= barrier,
            at.c.state == "COMMIT",
        )
        .order_by(other.c.barrier.desc())
        .limit(1)
        .correlate(of)
        .scalar_subquery()
    )
    return of.c.barrier == func.coalesce(newest, -1)


def _unread(connection: Connection, kept: int) -> tuple[int, int]:
    """Remove the rows in force of dropped tables and of former inputs, unless a version that
    stays was computed from them; returns the numbers of versions and pins."""
    of, pins, head = schema.version, schema.barrier_input, schema.head
    dropped = and_(of.c.barrier < kept, ~exists().where(head.c.table_name == of.c.table_name))
    gone = []
    for table, old in ((of, dropped), (pins, pins.c.barrier < kept)):
        found: Select[Any] = select(table.c.table_name).where(old).distinct()
        names: set[str] = set(connection.execute(found).scalars())
        # Rarely any: most barriers pin all inputs again.
        names -= _read(connection) if names else set()
        counts = [
            _count(connection, delete(table).where(old, table.c.table_name == name))
            for name in sorted(names)
        ]
        gone.append(sum(counts))
    return gone[0], gone[1]


def _read(connection: Connection) -> set[str]:
    """The tables that the versions that stay were computed from."""
    inputs = select(schema.version.c.inputs).distinct()
    return {name for row in connection.execute(inputs) for name in json.loads(row.inputs)}


def _old_entries(before: float) -> Delete:
    of = schema.audit
    newest = select(of.c.id).order_by(of.c.id.desc()).offset(ENTRIES - 1).limit(1)
    return delete(of).where(of.c.at < before, of.c.id < newest.scalar_subquery())


def _count(connection: Connection, gone: Delete) -> int:
    return int(connection.execute(gone).rowcount)
