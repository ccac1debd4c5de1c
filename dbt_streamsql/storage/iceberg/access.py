"""The access to Iceberg tables: the kind of a session decides how, here and once.

A classic session has a JVM in reach, and with it Iceberg's own Java (`jvm.py`). A client of Spark
Connect has statements, and the catalog's own files where they lie on this machine (`sql.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.quoting import TableName

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from dbt_streamsql.storage.iceberg.commits.refs import RefUpdate
    from dbt_streamsql.storage.iceberg.commits.row_delta import RowDelta
    from dbt_streamsql.storage.iceberg.metadata import Metadata
    from dbt_streamsql.storage.iceberg.provenance import Provenance
    from dbt_streamsql.storage.iceberg.scans.changes import Change


class Folders(Protocol):
    """Files and folders beside the tables, by their paths."""

    def names(self, folder: str) -> list[str]:
        """See `files.names`."""

    def size(self, folder: str) -> tuple[int, int] | None:
        """See `files.size`."""

    def delete(self, folder: str) -> bool:
        """Delete a folder, if it is there; whether it is gone."""

    def rename(self, old: str, new: str) -> None:
        """See `files.rename`."""


class NewerRows(Protocol):
    """The reads of one job that are quicker than all rows of a table under a condition."""

    @property
    def by_options(self) -> bool:
        """Whether options tell such a read what to read. Spark 4.1 gives a read of the same table
        by options in its SQL those as well, where each stands in a sub-query of its own."""

    def after(
        self, name: TableName, meta: Metadata, snapshot: int, number: int, worth: float
    ) -> DataFrame | None:
        """The rows of a snapshot written after a sequence number, maybe others too.

        None where the condition alone is better: also when they have more than the share `worth`
        of the table's bytes.
        """

    def appended(self, name: TableName, change: Change) -> DataFrame | None:
        """The rows of a change of kind append; None where its own SQL will do."""

    def close(self) -> None:
        """Forget what was prepared for the reads."""


class IcebergTables(Protocol):
    """The tables that one session reaches."""

    @property
    def folders(self) -> Folders: ...

    @property
    def writes_files(self) -> bool:
        """Whether the driver can write files where tables have theirs."""

    def load(self, name: TableName) -> Metadata | None:
        """See `metadata.load`."""

    def added_files(self, name: TableName, snapshot: int) -> list[str]:
        """The data files that one snapshot added."""

    def listed_files(self, name: TableName, snapshot: int) -> tuple[int, int]:
        """The data files and the delete files of a snapshot, counted by its list of manifests."""

    def knows_schema(self, catalog: str, schema: str) -> bool:
        """Whether it is known, without a statement, that the catalog has the schema."""

    def move(self, name: TableName, moves: RefUpdate) -> None:
        """See `refs.move`; there is something to move."""

    def expire(self, name: TableName, snapshots: Sequence[int]) -> None:
        """See `compaction.expire`; there is at least one."""

    def commit(
        self, name: TableName, branch: str, base: int, origin: Provenance, change: RowDelta
    ) -> str:
        """Make a branch at the snapshot `base` and put a change on it, in one commit; the path of
        the file with the new rows ('': there are none).

        Only where `writes_files`. Error: `delta.FilesUnknown`.
        """

    def newer_rows(self) -> NewerRows: ...

    def newest_file(self, name: TableName) -> str:
        """The metadata file of a table that exists, '' when its pointer cannot be swapped."""

    def add(self, name: TableName, file: str) -> None:
        """A new name for what a metadata file describes."""

    def swap(
        self, name: TableName, base: str, other: TableName, properties: Mapping[str, str | None]
    ) -> bool:
        """Give `name` the metadata of `other` with some properties changed; None removes one.

        `other` may lose its name by it. False, and nothing is changed, when the pointer of `name`
        is not `base` any more: somebody else has written.
        """


# Imported at the first use: what imports this module does not need Spark yet.


def _jvm(spark: SparkSession) -> IcebergTables:
    from dbt_streamsql.storage.iceberg.jvm import JvmTables

    return JvmTables(spark)


def _sql(spark: SparkSession) -> IcebergTables:
    from dbt_streamsql.storage.iceberg.sql import SqlTables

    return SqlTables(spark)


CLASSIC = "pyspark.sql.session.SparkSession"
CONNECT = "pyspark.sql.connect.session.SparkSession"

WAYS: dict[str, Callable[[Any], IcebergTables]] = {CLASSIC: _jvm, CONNECT: _sql}
"""What gives its tables to a session, by the full name of its class or of one that it extends.

By the name, since the class of Spark Connect brings gRPC along, which most processes never need.
"""


def full_name(kind: type) -> str:
    """A class as `WAYS` names it."""
    return f"{kind.__module__}.{kind.__qualname__}"


def tables_of(spark: SparkSession) -> IcebergTables:
    """The tables that a session reaches, in the way of its kind.

    Error: CONNECTION for a kind of which no way is known.
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
