"""The leases of one process, renewed in the background for as long as it reads."""

from __future__ import annotations

import threading

from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.meta import Lease, MetaStore
from dbt_streamsql.meta.store.leases import LEASE_SECONDS
from dbt_streamsql.meta.store.sql.lock import new_owner
from dbt_streamsql.runtime.core.epoch_state import log

RENEWALS = 3
"""Renewals in the lifetime of a lease: one may fail."""


class LeaseKeeper:
    """Takes leases and keeps them. Safe from several threads."""

    def __init__(self, store: MetaStore) -> None:
        self._store = store
        self._owner = new_owner()
        self._held: dict[str, Lease] = {}
        self._lost: dict[str, StreamSqlError] = {}
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def newest(self) -> Lease:
        """Hold the newest committed barrier. Error: META_CONFLICT when there is none."""
        while True:
            lease = self.take(self._store.last_committed())
            # A barrier that has a successor by now may have lost its pins before it was held.
            if self._store.last_committed() == lease.barrier:
                return lease
            self.give_back(lease)

    def take(self, barrier: int) -> Lease:
        """Hold a committed barrier. Error: META_CONFLICT."""
        lease = self._store.leases.take(self._owner, barrier)
        with self._lock:
            self._held[lease.id] = lease
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._renew, name="streamsql-leases", daemon=True
                )
                self._thread.start()
        return lease

    def check(self, lease: Lease) -> None:
        """LEASE_LOST when it could not be renewed in time."""
        with self._lock:
            lost = self._lost.get(lease.id)
        if lost is not None:
            raise lost

    def give_back(self, lease: Lease) -> None:
        """Release a barrier; harmless when it is already lost."""
        with self._lock:
            self._held.pop(lease.id, None)
            self._lost.pop(lease.id, None)
        self._store.leases.give_back(lease.id)

    def close(self) -> None:
        """Release all leases. The store must still be open."""
        self._ended.set()
        with self._lock:
            held, thread = list(self._held.values()), self._thread
        if thread is not None:
            thread.join()
        for lease in held:
            self.give_back(lease)

    def _renew(self) -> None:
        while not self._ended.wait(LEASE_SECONDS / RENEWALS):
            with self._lock:
                held = list(self._held)
            for lease in held:
                try:
                    self._store.leases.renew(lease)
                except StreamSqlError as error:
                    log.warning("a lease could not be renewed: %s", error.message)
                    if error.code == "LEASE_LOST":
                        with self._lock:
                            self._held.pop(lease, None)
                            self._lost[lease] = error
