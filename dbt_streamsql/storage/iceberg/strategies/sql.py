"""Iceberg tables by statements, for a client of Spark Connect, which has no JVM: see `access.py`.

The catalog's own files, if on this machine, give the same facts at once (`sqlite_catalog.py`).
Of the files next to the tables only local ones can be accessed.
"""

from __future__ import annotations

import shutil
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.quoting import TableName, literal, quote
from dbt_streamsql.storage.iceberg import sqlite_catalog
from dbt_streamsql.storage.iceberg.commits.refs import RefUpdate
from dbt_streamsql.storage.iceberg.commits.row_delta import RowDelta
from dbt_streamsql.storage.iceberg.metadata import Metadata, Snapshot, check_absent, from_json
from dbt_streamsql.storage.iceberg.provenance import Provenance
from dbt_streamsql.storage.iceberg.scans.appended_rows import AppendedRows
from dbt_streamsql.storage.iceberg.scans.changes import Change
from dbt_streamsql.storage.locations import local_path


@dataclass(frozen=True)
class SqlTables:
    """`IcebergTables` of a session without a JVM."""

    spark: SparkSession
    writes_files = False

    @property
    def folders(self) -> LocalFolders:
        return LocalFolders()

    def load(self, name: TableName) -> Metadata | None:
        try:
            body = sqlite_catalog.body(self.spark, name)
            found = None if body is None else from_json(body)
        except sqlite_catalog.CatalogNotLocalError:
            found = load(self.spark, name)
        return found and replace(found, listed=partial(self.listed_files, name))

    def added_files(self, name: TableName, snapshot: int) -> list[str]:
        rows = self.spark.sql(
            f"SELECT data_file.file_path FROM {name.child('all_entries')} "
            "WHERE snapshot_id = :snapshot AND status = 1 AND data_file.content = 0",
            args={"snapshot": snapshot},
        ).collect()
        return sorted({row[0] for row in rows})

    def listed_files(self, name: TableName, snapshot: int) -> tuple[int, int]:
        counts = ", ".join(
            f"coalesce(sum(added_{kind}_files_count + existing_{kind}_files_count), 0)"
            for kind in ("data", "delete")
        )
        row = self.spark.sql(
            f"SELECT {counts} FROM {name.child('manifests')} VERSION AS OF {int(snapshot)}"
        ).collect()[0]
        return int(row[0]), int(row[1])

    def knows_schema(self, catalog: str, schema: str) -> bool:
        try:
            return sqlite_catalog.has_schema(self.spark, catalog, schema)
        except sqlite_catalog.CatalogNotLocalError:
            return False

    def move(self, name: TableName, moves: RefUpdate) -> None:
        """Each by its own statement, in an order that is safe to stop in."""
        alter = f"ALTER TABLE {name.sql}"
        for kind, made in (("BRANCH", moves.branches), ("TAG", moves.tags)):
            for ref, snapshot in made.items():
                make = f"CREATE OR REPLACE {kind} {quote(ref)}"
                self.spark.sql(f"{alter} {make} AS OF VERSION {int(snapshot)}")
        if moves.forward:
            self.spark.sql(
                f"CALL {quote(name.catalog)}.system.fast_forward("
                f"table => {literal(_path(name))}, branch => 'main', "
                f"to => {literal(moves.forward)})"
            )
        for kind, gone in (("BRANCH", moves.drop_branches), ("TAG", moves.drop_tags)):
            for ref in gone:
                self.spark.sql(f"{alter} DROP {kind} IF EXISTS {quote(ref)}")

    def move_together(self, _: Mapping[TableName, RefUpdate]) -> bool:
        return False

    def expire(self, name: TableName, snapshots: Sequence[int]) -> None:
        ids = ", ".join(f"{int(snapshot)}L" for snapshot in snapshots)
        self.spark.sql(
            f"CALL {quote(name.catalog)}.system.expire_snapshots("
            f"table => {literal(_path(name))}, snapshot_ids => ARRAY({ids}))"
        ).collect()

    def commit(
        self, name: TableName, branch: str, base: int, origin: Provenance, change: RowDelta
    ) -> str:
        raise NotImplementedError("over Spark Connect the driver writes no files")

    def file_rows(self, _: TableName, __: int, ___: Sequence[str], ____: int) -> None:
        """Where the files are is known to the server alone."""

    def changed_rows(
        self, _: TableName, __: Metadata, ___: Change, ____: Sequence[str], _____: int
    ) -> None:
        """Likewise."""

    def keyed_rows(self, _: TableName, __: int, ___: object) -> None:
        """Likewise."""

    def newer_rows(self) -> AppendedRows:
        return AppendedRows(self.spark)

    def purge(self, _: str, __: str) -> None:
        """A statement has deleted the files of the table; others are the server's."""

    def newest_file(self, name: TableName) -> str:
        try:
            return sqlite_catalog.location(self.spark, name)
        except sqlite_catalog.CatalogNotLocalError:
            return ""

    def add(self, name: TableName, file: str) -> None:
        sqlite_catalog.add(self.spark, name, file)

    def swap(
        self, name: TableName, base: str, other: TableName, properties: Mapping[str, str | None]
    ) -> bool:
        return sqlite_catalog.swap(self.spark, name, base, other, properties)


class LocalFolders:
    """`Folders` of this machine."""

    def reaches(self, folder: str) -> bool:
        return local_path(folder) is not None

    def names(self, folder: str) -> list[str]:
        local = local_path(folder)
        return [found.name for found in local.iterdir()] if local and local.is_dir() else []

    def size(self, folder: str) -> tuple[int, int] | None:
        local = _local(folder)
        sizes = [found.stat().st_size for found in local.rglob("*") if found.is_file()]
        return (len(sizes), sum(sizes)) if local.is_dir() else None

    def delete(self, folder: str) -> bool:
        local = _local(folder)
        shutil.rmtree(local, ignore_errors=True)
        return not local.exists()

    def rename(self, old: str, new: str) -> None:
        _local(old).rename(_local(new))


def _local(path: str) -> Path:
    return Path(path.removeprefix("file:"))


def _path(name: TableName) -> str:
    return f"{quote(name.schema)}.{quote(name.table)}"


def load(spark: SparkSession, name: TableName) -> Metadata | None:
    """`metadata.load` from Iceberg's metadata tables, at a small job each."""
    try:
        described = {
            row[0]: row[1] for row in spark.sql(f"SHOW TBLPROPERTIES {name.sql}").collect()
        }
        detail = spark.sql(f"DESCRIBE TABLE EXTENDED {name.sql}").collect()
    except PySparkException as error:
        check_absent(error, name)
        return None
    if "current-snapshot-id" not in described:
        provider = next((row[1] for row in detail if row[0] == "Provider"), "")
        if not provider:
            return None  # a view
        raise StreamSqlError("SQL_UNSUPPORTED", f"{name} is not an Iceberg table", given=provider)
    location = next((row[1] for row in detail if row[0] == "Location"), "")
    columns = "|".join(f"{row[0]} {row[1]}" for row in detail if row[0] and row[0][0] != "#")
    current = described.get("current-snapshot-id", "none")
    snapshots = {
        row["snapshot_id"]: Snapshot(
            row["snapshot_id"],
            row["parent_id"],
            int(row["sequence_number"]),
            row["operation"] or "",
            {**(row["summary"] or {}), "operation": row["operation"] or ""},
            int(described.get("format-version", "2")) >= 3,
            row["committed"],
        )
        for row in spark.sql(
            "SELECT s.snapshot_id, s.parent_id, s.operation, s.summary, "
            "unix_millis(s.committed_at) AS committed, "
            "coalesce(m.latest_sequence_number, 0) AS sequence_number "
            f"FROM {name.child('snapshots')} s LEFT JOIN {name.child('metadata_log_entries')} m "
            "ON m.latest_snapshot_id = s.snapshot_id"
        ).collect()
    }
    refs = spark.sql(f"SELECT name, snapshot_id FROM {name.child('refs')}").collect()
    return Metadata(
        uuid=location,
        location=location,
        format_version=int(described.get("format-version", "2")),
        schema_id=zlib.crc32(columns.encode()),
        current=None if current == "none" else int(current),
        snapshots=snapshots,
        refs={row[0]: row[1] for row in refs},
        properties=described,
        partitioning=tuple(row[1] for row in detail if row[0].startswith("Part ")),
    )
