"""MetaService: which table version belongs to which barrier, and which job feeds which."""

from __future__ import annotations

from dbt_streamsql.meta.client.open_store import open_store
from dbt_streamsql.meta.inspect.consistent_cut import (
    LEVELS,
    Consistency,
    Cut,
    Seen,
    check_level,
    cut,
)
from dbt_streamsql.meta.model.records import (
    NOOP,
    ROLLBACK,
    ROLLED_BACK,
    Barrier,
    BarrierState,
    ChangeFile,
    Entry,
    Fence,
    Job,
    Leader,
    Lease,
    Published,
    Sink,
    Span,
    TableVersion,
    VersionState,
)
from dbt_streamsql.meta.store.api import MetaReader, MetaStore
from dbt_streamsql.meta.store.retention import Forgotten, Outlook, Retention

__all__ = [
    "LEVELS",
    "NOOP",
    "ROLLBACK",
    "ROLLED_BACK",
    "Barrier",
    "BarrierState",
    "ChangeFile",
    "Consistency",
    "Cut",
    "Entry",
    "Fence",
    "Forgotten",
    "Job",
    "Leader",
    "Lease",
    "MetaReader",
    "MetaStore",
    "Outlook",
    "Published",
    "Retention",
    "Seen",
    "Sink",
    "Span",
    "TableVersion",
    "VersionState",
    "check_level",
    "cut",
    "open_store",
]
