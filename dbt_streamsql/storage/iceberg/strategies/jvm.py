"""Iceberg tables through Iceberg's own Java, in the JVM of a classic session: see `access.py`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from dbt_streamsql.quoting import TableName
from dbt_streamsql.storage.iceberg import gateway_work, pointer, table_reads
from dbt_streamsql.storage.iceberg.caching_io import file_io
from dbt_streamsql.storage.iceberg.commits import row_delta, transaction
from dbt_streamsql.storage.iceberg.commits.refs import RefUpdate
from dbt_streamsql.storage.iceberg.commits.row_delta import RowDelta
from dbt_streamsql.storage.iceberg.files import place
from dbt_streamsql.storage.iceberg.metadata import Metadata, check_absent, from_json
from dbt_streamsql.storage.iceberg.provenance import Provenance
from dbt_streamsql.storage.iceberg.scans import changed_rows, file_rows, keyed_rows
from dbt_streamsql.storage.iceberg.scans.changes import Change
from dbt_streamsql.storage.iceberg.scans.file_rows import FileRows
from dbt_streamsql.storage.iceberg.scans.planned_files import PlannedFiles
from dbt_streamsql.storage.java import items, java_class, java_table

Rows = TypeVar("Rows")


@dataclass(frozen=True)
class JvmTables:
    """`IcebergTables` of a session with a JVM."""

    spark: SparkSession
    writes_files = True

    @property
    def folders(self) -> HadoopFolders:
        return HadoopFolders(self.spark)

    def load(self, name: TableName) -> Metadata | None:
        try:
            text = gateway_work.metadata(self.spark, name)
        except PySparkException as error:
            check_absent(error, name)
            return None
        found = from_json(json.loads(text))
        return replace(found, listed=partial(self.listed_files, name))

    def added_files(self, name: TableName, snapshot: int) -> list[str]:
        table = java_table(self.spark, name)
        files = table.snapshot(snapshot).addedDataFiles(table.io()).iterator()
        found = []
        while files.hasNext():
            found.append(str(files.next().location()))
        return found

    def listed_files(self, name: TableName, snapshot: int) -> tuple[int, int]:
        table = java_table(self.spark, name)
        at, io = table.snapshot(snapshot), table.io()
        data, deletes = (
            sum(
                int(found.addedFilesCount() or 0) + int(found.existingFilesCount() or 0)
                for found in items(manifests)
            )
            for manifests in (at.dataManifests(io), at.deleteManifests(io))
        )
        return data, deletes

    def knows_schema(self, _: str, __: str) -> bool:
        return False  # Iceberg's catalog would have to ask as well

    def move(self, name: TableName, moves: RefUpdate) -> None:
        move(java_table(self.spark, name), moves)

    def move_together(self, moves: Mapping[TableName, RefUpdate]) -> bool:
        return transaction.commit(self.spark, moves, with_moves)

    def expire(self, name: TableName, snapshots: Sequence[int]) -> None:
        change = java_table(self.spark, name).expireSnapshots()
        for snapshot in snapshots:
            change = change.expireSnapshotId(snapshot)
        change.commit()

    def commit(
        self, name: TableName, branch: str, base: int, origin: Provenance, change: RowDelta
    ) -> str:
        return row_delta.commit(self.spark, name, branch, base, origin, change)

    def file_rows(
        self, name: TableName, snapshot: int, columns: Sequence[str], most: int
    ) -> list[FileRows] | None:
        return _noted(name, file_rows.read(self.spark, name, snapshot, columns, most))

    def changed_rows(
        self, name: TableName, meta: Metadata, change: Change, columns: Sequence[str], most: int
    ) -> pa.Table | None:
        return _noted(name, changed_rows.read(self.spark, name, meta, change, columns, most))

    def keyed_rows(
        self, name: TableName, snapshot: int, asked: keyed_rows.Asked
    ) -> list[FileRows] | None:
        return _noted(name, keyed_rows.read(self.spark, name, snapshot, asked))

    def newer_rows(self) -> PlannedFiles:
        return PlannedFiles(self.spark)

    def purge(self, catalog: str, folder: str) -> None:
        try:
            io = file_io(self.spark, catalog)
            try:
                io.deletePrefix(f"{folder}/")
            finally:
                io.close()
        except Py4JError as error:
            raise OSError(f"{folder} cannot be deleted") from error

    def newest_file(self, name: TableName) -> str:
        return pointer.newest(self.spark, name)

    def add(self, name: TableName, file: str) -> None:
        pointer.add(self.spark, name, file)

    def swap(
        self, name: TableName, base: str, other: TableName, properties: Mapping[str, str | None]
    ) -> bool:
        return pointer.swap(self.spark, name, base, other, properties)


def _noted(name: TableName, rows: Rows | None) -> Rows | None:
    if rows is not None:
        table_reads.note(name)
    return rows


@dataclass(frozen=True)
class HadoopFolders:
    """`Folders` on any file system that Hadoop knows."""

    spark: SparkSession

    def reaches(self, folder: str) -> bool:
        try:
            place(self.spark, folder)
        except Py4JError:
            return False
        return True

    def names(self, folder: str) -> list[str]:
        if not self.reaches(folder):
            return []
        at, system = place(self.spark, folder)
        if not system.exists(at):
            return []
        return [found.getPath().getName() for found in system.listStatus(at)]

    def size(self, folder: str) -> tuple[int, int] | None:
        try:
            at, system = place(self.spark, folder)
            found = system.getContentSummary(at)
            return int(found.getFileCount()), int(found.getLength())
        except Py4JError:
            return None  # Iceberg accesses it without Hadoop

    def delete(self, folder: str) -> bool:
        if not self.reaches(folder):
            return False
        at, system = place(self.spark, folder)
        # A local file system returns only False, also for a path that did not exist.
        return bool(system.delete(at, True) or not system.exists(at))

    def rename(self, old: str, new: str) -> None:
        at, system = place(self.spark, old)
        # If that folder exists, it would be moved into it without an error.
        to = java_class(self.spark, "org.apache.hadoop.fs.Path")(new)
        if system.exists(to) or not system.rename(at, to):
            raise OSError(f"{old} cannot be renamed to {new}")


def move(table: Any, moves: RefUpdate) -> None:
    """Apply the moves of one table, Iceberg's own, in one commit."""
    with_moves(table.refs(), table.manageSnapshots(), moves).commit()


def with_moves(known: Any, change: Any, moves: RefUpdate) -> Any:
    """An update of a table's refs, Iceberg's own, with the moves; `known`: the refs it has."""
    for branch, snapshot in moves.branches.items():
        make = change.replaceBranch if known.containsKey(branch) else change.createBranch
        change = make(branch, snapshot)
    for tag, snapshot in moves.tags.items():
        change = change.createTag(tag, snapshot)
    if moves.forward:
        change = change.fastForwardBranch("main", moves.forward)
    for branch in moves.drop_branches:
        change = change.removeBranch(branch)
    for tag in moves.drop_tags:
        change = change.removeTag(tag)
    return change
