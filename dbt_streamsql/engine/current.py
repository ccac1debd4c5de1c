"""The epoch that an engine has open, and the warehouse as that epoch shows it."""

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
        """The definitions as the open epoch has them, else the committed ones."""
        epoch = self.epoch
        return epoch.open.jobs if epoch is not None else self._store.jobs()

    def staged(self, name: TableName) -> Version | None:
        """The unpublished version of a table."""
        epoch = self.epoch
        return epoch.staged(str(name)) if epoch is not None else None

    def pinned(self, name: TableName) -> Metadata | None:
        """What the open epoch has loaded of a table already."""
        epoch = self.epoch
        return epoch.known(str(name)) if epoch is not None else None

    def place(self, name: TableName) -> TableName:
        """Where the rows of a table are: a staged version may have a table of its own."""
        version = self.staged(name)
        return version.at if version is not None else name
