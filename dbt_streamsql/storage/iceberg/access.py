"""Access to Iceberg tables: the kind of session decides how, here and once.

A classic session has a JVM, and with it Iceberg's own Java (`jvm.py`). A client of Spark
Connect has statements, and the catalog's own files where they are on this machine (`sql.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.quoting import TableName

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from dbt_streamsql.storage.iceberg.commits.refs import RefUpdate
    from dbt_streamsql.storage.iceberg.commits.row_delta import RowDelta
    from dbt_streamsql.storage.iceberg.metadata import Metadata
    from dbt_streamsql.storage.iceberg.provenance import Provenance
    from dbt_streamsql.storage.iceberg.scans.changes import Change, ChangedFiles
    from dbt_streamsql.storage.iceberg.scans.file_rows import FileRows
    from dbt_streamsql.storage.iceberg.scans.keyed_rows import Asked


class Folders(Protocol):
    """Files and folders next to the tables, by their paths."""

    def reaches(self, folder: str) -> bool:
        """See `files.reaches`."""

    def names(self, folder: str) -> list[str]:
        """See `files.names`."""

    def size(self, folder: str) -> tuple[int, int] | None:
        """See `files.size`."""

    def delete(self, folder: str) -> bool:
        """Delete a folder, if it exists; returns whether it is gone."""

    def rename(self, old: str, new: str) -> None:
        """See `files.rename`."""


class NewerRows(Protocol):
    """The reads of one job that are faster than filtering all rows of a table."""

    @property
    def by_options(self) -> bool:
        """Whether such a read is controlled by options. Spark 4.1 also applies them to an
        option-based read of the same table in its SQL, where each is in its own sub-query."""

    def after(
        self, name: TableName, meta: Metadata, snapshot: int, number: int, worth: float
    ) -> DataFrame | None:
        """The rows of a snapshot written after a sequence number, possibly with other rows.

        None where the filter alone is better: also when they have more than the share `worth`
        of the table's bytes.
        """

    def appended(self, name: TableName, change: Change) -> DataFrame | None:
        """The rows of a change of kind append; None where its own SQL suffices."""

    def changed(self, name: TableName, meta: Metadata, change: Change) -> ChangedFiles | None:
        """The files that a change is in, as relations of this session.

        None where the whole version is to be read.
        """

    def close(self) -> None:
        """Discard what was prepared for the reads."""


class IcebergTables(Protocol):
    """The tables that one session can access."""

    @property
    def folders(self) -> Folders: ...

    @property
    def writes_files(self) -> bool:
        """Whether the driver can write files where tables store theirs."""

    def load(self, name: TableName) -> Metadata | None:
        """See `metadata.load`."""

    def added_files(self, name: TableName, snapshot: int) -> list[str]:
        """The data files that one snapshot added."""

    def listed_files(self, name: TableName, snapshot: int) -> tuple[int, int]:
        """The data files and the delete files of a snapshot, counted from its manifest list."""

    def knows_schema(self, catalog: str, schema: str) -> bool:
        """Whether it is known, without a statement, that the catalog has the schema."""

    def move(self, name: TableName, moves: RefUpdate) -> None:
        """See `refs.update_refs`; there is at least one move."""

    def move_together(self, moves: Mapping[TableName, RefUpdate]) -> bool:
        """See `refs.update_together`; there are several tables, all of one catalog."""

    def expire(self, name: TableName, snapshots: Sequence[int]) -> None:
        """See `table_maintenance.expire`; there is at least one."""

    def commit(
        self, name: TableName, branch: str, base: int, origin: Provenance, change: RowDelta
    ) -> str:
        """Create a branch at the snapshot `base` and commit a change to it, in one commit; returns
        the path of the file with the new rows ('': there are none).

        Only where `writes_files`. Error: `row_delta.FilesUnknown`.
        """

    def file_rows(
        self, name: TableName, snapshot: int, columns: Sequence[str], most: int
    ) -> list[FileRows] | None:
        """See `file_rows.read`."""

    def changed_rows(
        self, name: TableName, meta: Metadata, change: Change, columns: Sequence[str], most: int
    ) -> pa.Table | None:
        """See `changed_rows.read`."""

    def keyed_rows(self, name: TableName, snapshot: int, asked: Asked) -> list[FileRows] | None:
        """See `keyed_rows.read`."""

    def newer_rows(self) -> NewerRows: ...

    def purge(self, catalog: str, folder: str) -> None:
        """Delete every file below a folder that only the catalog's own clients reach.

        Error: OSError.
        """

    def newest_file(self, name: TableName) -> str:
        """The metadata file of an existing table, '' when its pointer cannot be swapped."""

    def add(self, name: TableName, file: str) -> None:
        """Register a new name for the table of a metadata file."""

    def swap(
        self, name: TableName, base: str, other: TableName, properties: Mapping[str, str | None]
    ) -> bool:
        """Give `name` the metadata of `other` with some properties changed; None removes one.

        `other` may lose its name by this. Returns False, and changes nothing, when the pointer of
        `name` is no longer `base`: another writer has changed it.
        """


def _strategy(module: str, name: str) -> Callable[[Any], IcebergTables]:
    """A strategy, imported on first use: importers of this module do not need Spark yet."""

    def make(spark: SparkSession) -> IcebergTables:
        found: IcebergTables = getattr(import_module(f"{__package__}.strategies.{module}"), name)(
            spark
        )
        return found

    return make


CLASSIC = "pyspark.sql.session.SparkSession"
CONNECT = "pyspark.sql.connect.session.SparkSession"

WAYS: dict[str, Callable[[Any], IcebergTables]] = {
    CLASSIC: _strategy("jvm", "JvmTables"),
    CONNECT: _strategy("sql", "SqlTables"),
}
"""The function that gives a session its tables, by the full name of its class or a base class.

By name, since the class of Spark Connect imports gRPC, which most processes never need.
"""


def full_name(kind: type) -> str:
    """The name of a class in `WAYS`."""
    return f"{kind.__module__}.{kind.__qualname__}"


def tables_of(spark: SparkSession) -> IcebergTables:
    """The tables that a session can access, by its kind.

    Error: CONNECTION for an unknown kind.
    """
    for kind in type(spark).__mro__:
        make = WAYS.get(full_name(kind))
        if make is not None:
            return make(spark)
    raise StreamSqlError(
        "CONNECTION",
        "this kind of session cannot access Iceberg tables",
        given=full_name(type(spark)),
        allowed=", ".join(WAYS),
        hint="use a PySpark session",
    )
