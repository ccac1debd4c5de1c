"""The audit log: who committed, aborted, dropped, took over or revised what, and when.

A line is written in the transaction of its action, so that each action has one line and
actions that did not happen have none. Lines are never changed; old ones are removed as in
`meta/store/retention.py`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, insert, select

from dbt_streamsql.meta.model.records import Entry
from dbt_streamsql.meta.store.sql import schema
from dbt_streamsql.meta.store.sql.database import Database


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
