"""The history of a Delta table, read from its log: versions and the signed rows between two.

Delta counts versions from 0 for each table. Here a version is a negative number, unlike any
Iceberg snapshot, and contains a part of the table's id: a table that was dropped and recreated has
none of the versions of the old one.

Source: the Delta transaction log protocol (github.com/delta-io/delta, PROTOCOL.md).
"""

from __future__ import annotations

import json
import posixpath
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import SparkSession

from dbt_streamsql.plan.algebra.schema import WEIGHT
from dbt_streamsql.quoting import TableName, quote
from dbt_streamsql.storage.iceberg import files
from dbt_streamsql.storage.iceberg.metadata import Metadata, Snapshot
from dbt_streamsql.storage.iceberg.scans.changes import Change
from dbt_streamsql.storage.java import is_connect, java_class

FORMAT = "delta"
CHANGE_FEED = "delta.enableChangeDataFeed"
_VERSIONS = 1 << 31
_MANY_ROWS = 1 << 40
"""The assumed number of rows of a commit that does not give it."""


def number(table_id: str, version: int) -> int:
    """The version of one table as a number that no other table has."""
    return -(zlib.crc32(table_id.encode()) * _VERSIONS + version) - 1


def version_of(number: int) -> int:
    """Delta's own version."""
    return (-number - 1) % _VERSIONS


@dataclass
class Commits(Mapping[int, Snapshot]):
    """The commits of a table by number, each read from the log on demand."""

    spark: SparkSession
    folder: str
    table_id: str
    versions: range
    known: dict[int, Snapshot] = field(default_factory=dict)

    def __getitem__(self, key: int) -> Snapshot:
        version = version_of(key)
        if key >= 0 or number(self.table_id, version) != key or version not in self.versions:
            raise KeyError(key)
        if key not in self.known:
            self.known[key] = self._read(key, version)
        return self.known[key]

    def __iter__(self) -> Iterator[int]:
        return (number(self.table_id, version) for version in self.versions)

    def __len__(self) -> int:
        return len(self.versions)

    def _read(self, key: int, version: int) -> Snapshot:
        path = posixpath.join(self.folder, "_delta_log", f"{version:020}.json")
        lines = files.read(self.spark, path).decode().splitlines()
        return _snapshot(self, key, version, [json.loads(line) for line in lines if line])


def load(spark: SparkSession, told: Mapping[str, str]) -> Metadata | None:
    """The versions of a Delta table, from its description; None when the table is not a
    Delta table, or out of reach.

    Every table is out of reach over Spark Connect: then it is read in full.
    """
    if is_connect(spark) or told.get("Provider", "").lower() != FORMAT:
        return None
    log = java_class(spark, "org.apache.spark.sql.delta.DeltaLog").forTable(
        spark._jsparkSession, told["Location"]
    )
    # Java sees no default arguments; Scala keeps each in its own method.
    newest = log.update(*(getattr(log, f"update$default${at}")() for at in (1, 2, 3)))
    properties = newest.metadata().configuration()
    feed = properties.contains(CHANGE_FEED) and properties.apply(CHANGE_FEED) == "true"
    table_id, current = str(newest.metadata().id()), int(newest.version())
    commits = Commits(spark, told["Location"], table_id, _kept(spark, told["Location"], current))
    schema = str(newest.metadata().schemaString())
    schema_id = zlib.crc32(schema.encode())
    return Metadata(
        uuid=table_id,
        location=told["Location"],
        format_version=0,
        schema_id=schema_id,
        current=number(table_id, current),
        snapshots=commits,
        refs={},
        properties={CHANGE_FEED: "true"} if feed else {},
        schemas={schema_id: tuple(json.loads(schema)["fields"])},
        format=FORMAT,
    )


def classify(meta: Metadata, old: int | None, new: int | None) -> Change:
    """How to get from one version to another: the change data feed, or the difference.

    `lost` when the old version is gone, also when its files may have been vacuumed.
    """
    if old == new:
        return Change("none", old, new)
    path = meta.lineage(new, old) if old in meta.snapshots else None
    if path is None or any(commit.summary["operation"].startswith("VACUUM") for commit in path):
        return Change("lost", old, new)
    path = [commit for commit in path if commit.operation != "replace"]
    rows = sum(c.count("added-records") + c.count("deleted-records") for c in path)
    if not path:
        return Change("none", old, new)
    told = CHANGE_FEED in meta.properties and not any("metadata" in c.summary for c in path)
    if not told:
        return Change("difference", old, new, rows)
    inserts = all(commit.operation == "append" for commit in path)
    return Change("append" if inserts else "changelog", old, new, rows)


def version(name: TableName, number: int) -> str:
    """The SQL of the table at that version."""
    return f"{name.sql} VERSION AS OF {version_of(number)}"


def feed(name: TableName, change: Change, columns: tuple[str, ...]) -> str:
    """The change data feed as signed rows, `columns` and the weight: SQL that may follow FROM."""
    assert change.old is not None
    assert change.new is not None
    names = ", ".join(quote(column) for column in columns)
    first, last = version_of(change.old) + 1, version_of(change.new)
    return (
        f"(SELECT {names}, CASE _change_type WHEN 'insert' THEN 1L WHEN 'update_postimage' "
        f"THEN 1L ELSE -1L END AS {WEIGHT} FROM {name.sql} WITH (`readChangeFeed` = 'true', "
        f"`startingVersion` = '{first}', `endingVersion` = '{last}'))"
    )


def _kept(spark: SparkSession, folder: str, current: int) -> range:
    """The versions whose commits are still in the log: those without a gap below the newest."""
    names = set(files.names(spark, posixpath.join(folder, "_delta_log")))
    oldest = current
    while oldest > 0 and f"{oldest - 1:020}.json" in names:
        oldest -= 1
    return range(oldest, current + 1)


def _snapshot(commits: Commits, key: int, version: int, actions: list[dict[str, Any]]) -> Snapshot:
    by_kind: dict[str, list[dict[str, Any]]] = {}
    for action in actions:
        for kind, body in action.items():
            by_kind.setdefault(kind, []).append(body)
    info = next(iter(by_kind.get("commitInfo", [])), {})
    added, gone = ([a for a in by_kind.get(k, []) if a["dataChange"]] for k in ("add", "remove"))
    operation = "overwrite" if gone else "append" if added else "replace"
    summary = {
        "operation": str(info.get("operation", "")),
        "added-records": str(sum(map(_rows, added))),
        "deleted-records": str(sum(map(_rows, gone))),
    }
    if "metaData" in by_kind:
        summary["metadata"] = "changed"
    parent = number(commits.table_id, version - 1) if version - 1 in commits.versions else None
    return Snapshot(
        key, parent, version, operation, summary, committed=int(info.get("timestamp", 0))
    )


def _rows(action: dict[str, Any]) -> int:
    stats = json.loads(action.get("stats") or "{}")
    return int(stats.get("numRecords", _MANY_ROWS))
