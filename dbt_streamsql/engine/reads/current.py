"""The open epoch of an engine, and the warehouse as seen in that epoch."""

from __future__ import annotations

from collections.abc import Mapping

from dbt_streamsql.meta import Job, MetaStore
from dbt_streamsql.quoting import TableName
from dbt_streamsql.runtime.core.epoch_state import Version
from dbt_streamsql.runtime.epoch import Epoch
from dbt_streamsql.storage.iceberg.metadata import Metadata


class CurrentEpoch:
    """The open epoch of an engine (None: there is none). Only `EpochControl` sets it."""

    def __init__(self, store: MetaStore) -> None:
        self._store = store
        self.epoch: Epoch | None = None

    def jobs(self) -> Mapping[str, Job]:
        """The definitions in the open epoch, or the committed ones."""
        epoch = self.epoch
        return epoch.state.jobs if epoch is not None else self._store.jobs()

    def staged(self, name: TableName) -> Version | None:
        """The unpublished version of a table."""
        epoch = self.epoch
        return epoch.staged(str(name)) if epoch is not None else None

    def pinned(self, name: TableName) -> Metadata | None:
        """The table metadata that the open epoch has already loaded."""
        epoch = self.epoch
        return epoch.known(str(name)) if epoch is not None else None

    def place(self, name: TableName) -> TableName:
        """Where the rows of a table are: a staged version may have a table of its own."""
        version = self.staged(name)
        return version.at if version is not None else name
