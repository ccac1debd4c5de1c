"""The audit log: who committed, gave up, dropped, took over or revised what, and when.

A line is written in the transaction of what it tells, so that there is one for each and none for
what did not happen. Lines are never changed; old ones go as `meta/store/retention.py` says.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, insert, select

from dbt_streamsql.meta.model.records import Entry
from dbt_streamsql.meta.store import schema
from dbt_streamsql.meta.store.database import Database


def enter(
    connection: Connection, at: float, who: str, action: str, detail: Mapping[str, Any]
) -> None:
    text = json.dumps(dict(detail), sort_keys=True, ensure_ascii=False)
    row = {"at": at, "who": who, "action": action, "detail": text}
    connection.execute(insert(schema.audit).values(row))


def entries(database: Database, limit: int, before: int | None) -> list[Entry]:
    of = schema.audit
    newest = select(of).order_by(of.c.id.desc()).limit(limit)
    if before is not None:
        newest = newest.where(of.c.id < before)
    with database.read() as connection:
        rows = connection.execute(newest).mappings().all()
    return [Entry(**{**row, "detail": json.loads(row["detail"])}) for row in rows]
