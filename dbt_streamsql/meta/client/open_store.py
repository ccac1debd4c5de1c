"""The only place that opens a store, by its address."""

from __future__ import annotations

import time
from collections.abc import Callable

from dbt_streamsql.meta.store.api import MetaStore
from dbt_streamsql.meta.store.sql.database import Database
from dbt_streamsql.meta.store.store import SqlMetaStore


def open_store(url: str, clock: Callable[[], float] = time.time, *, token: str = "") -> MetaStore:
    """Open or create a store: `sqlite:///<file>` (its folder must exist) or `postgresql…`; or
    reach one by the MetaService that serves it, `http://127.0.0.1:<port>` or `https://…`.

    `token` is for a MetaService ('': that of a service on this host), whose clock is used.
    META_UNREACHABLE when it cannot be reached, META_VERSION when a different version wrote it,
    META_DENIED when the service does not know the token.
    """
    if url.startswith(("http://", "https://")):
        from dbt_streamsql.meta.client.client import MetaClient

        return MetaClient(url, token)
    return open_database(url, clock)


def open_database(url: str, clock: Callable[[], float] = time.time) -> SqlMetaStore:
    """`open_store`, of one that no service serves yet."""
    return SqlMetaStore(Database(url), clock)
