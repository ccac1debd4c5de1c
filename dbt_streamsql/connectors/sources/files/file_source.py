"""Files in a folder: each new file is read once.

A position names lists of files that were read (`seen`, in levels), the list of this barrier
(`new`) and that of the barrier before (`after`). The lists are in a folder next to the
warehouse's tables and never change, so rereading a barrier reads exactly the same files. A
watermark of names or times would be smaller, but it loses a file that arrives with an earlier
time than its neighbors; whole lists in the positions would grow with the folder. Sixteen lists
of a level are merged into one of the next: a position stays below a few kilobytes for any number
of barriers and files.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dbt_streamsql.connectors.options import EARLIEST, LATEST, Options
from dbt_streamsql.connectors.sources.files import file_reader
from dbt_streamsql.connectors.sources.files.folder_listing import (
    Entry,
    Files,
    Ledger,
    base_of,
    files_of,
)
from dbt_streamsql.connectors.sources.formats import decoding
from dbt_streamsql.connectors.sources.source import (
    End,
    Omissions,
    Omitting,
    Position,
)
from dbt_streamsql.errors import Place, StreamSqlError
from dbt_streamsql.quoting import TableName
from dbt_streamsql.storage.conf import warehouse_of
from dbt_streamsql.storage.iceberg.files import reaches

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMATS = ("json", "csv", "parquet", "avro", "debezium", "text")
FAIL, IGNORE = "fail", "ignore"
OWN = (("_file", "string"), ("_modified", "timestamp"))
FAN = 16
"""This many lists of a level become one of the next."""
FORGOTTEN = 30 * 86_400
"""Seconds after which missing files, and lists that no reader continues from, are forgotten."""


@dataclass(frozen=True)
class FileStream:
    """The connector `files`. `start` is earliest, latest, or seconds since 1970; `fan`: see
    `FAN`."""

    path: str
    format: str
    reader: file_reader.Reader
    start: str | float
    most: int | None
    min_age: float
    on_rewrite: str
    ledger: str | None
    table: str
    place: Place
    fan: int = FAN

    @property
    def name(self) -> str:
        return f"{self.format} files in {self.path}"

    def columns(self, spark: SparkSession) -> tuple[tuple[str, str], ...]:
        found = self.reader.columns(spark, lambda: self._first(spark))
        return decoding.with_own(found, OWN, self.place)

    def omissions(self, spark: SparkSession) -> Omissions | None:
        return self.reader.omissions(spark) if isinstance(self.reader, Omitting) else None

    def end(self, spark: SparkSession, after: Position | None) -> End | None:
        """The new files, oldest first.

        Errors: STREAM_CHANGED for a file that was rewritten after it was read; STREAM_LOST when
        the list of read files is gone.
        """
        ledger = self._ledger(spark)
        there = self._files(spark).list(self.path)
        seen = self._seen(ledger, after)
        self._check(there, seen)
        new = sorted(
            (entry for path, entry in there.items() if path not in seen), key=lambda e: e.order
        )
        passed = []
        if after is None:
            passed = [entry for entry in new if not self._wanted(entry)]
            new = new[len(passed) :] if self.start != LATEST else []
        latest = (time.time() - self.min_age) * 1000
        new = [entry for entry in new if not self.min_age or entry.modified <= latest][: self.most]
        if after is not None and not new:
            return None
        levels = [tuple(each) for each in after["seen"]] if after else []
        named = ledger.write(new) if new else None
        added = [named] if named else []
        added += [ledger.write(passed)] if passed else []
        levels = self._merged(ledger, [*levels, *((0, name) for name in added)], there)
        position = {
            "after": after["new"] if after else None,
            "new": named,
            "seen": [list(each) for each in levels],
        }
        oldest = min((entry.modified for entry in new), default=None)
        return End(position, None if new else 0, None if oldest is None else oldest / 1000)

    def read(self, spark: SparkSession, after: Position | None, upto: Position) -> DataFrame:
        ledger = self._ledger(spark)
        known = ledger.read(upto["new"]) if upto["new"] else {}
        if after is not None and after["new"] != upto["after"]:
            before = self._seen(ledger, after)
            known = {
                path: entry
                for path, entry in self._seen(ledger, upto).items()
                if path not in before
            }
        wanted = sorted(known.values(), key=lambda entry: entry.order)
        now = self._files(spark).look([entry.path for entry in wanted])
        for entry in wanted:
            found = now.get(entry.path)
            if found != entry:
                raise self._changed(entry, "is gone" if found is None else "was rewritten")
        return self.reader.read(spark, wanted, self.columns(spark), base_of(self.path))

    def release(self, spark: SparkSession, upto: Position) -> None:
        """Remove lists that no position of the last month names."""
        if upto["new"] is not None and not any(level == 0 for level, _ in upto["seen"]):
            kept = {name for _, name in upto["seen"]} | {upto["new"]}
            self._ledger(spark).clean(kept, FORGOTTEN)

    def _wanted(self, entry: Entry) -> bool:
        if isinstance(self.start, str):
            return self.start == EARLIEST
        return entry.modified >= self.start * 1000

    def _first(self, spark: SparkSession) -> list[Entry]:
        """The oldest file, for formats whose files carry the columns."""
        there = self._files(spark).list(self.path)
        return sorted(there.values(), key=lambda entry: entry.order)[:1]

    def _merged(
        self, ledger: Ledger, levels: list[Any], there: Mapping[str, Entry]
    ) -> list[tuple[int, str]]:
        """The lists, merged."""
        level = 0
        while any(found >= level for found, _ in levels):
            same = [name for found, name in levels if found == level]
            if len(same) >= self.fan:
                files: dict[str, Entry] = {}
                for name in same:
                    files |= ledger.read(name)
                old = (time.time() - FORGOTTEN) * 1000
                kept = [e for e in files.values() if e.path in there or e.modified > old]
                levels = [each for each in levels if each[0] != level]
                levels.append((level + 1, ledger.write(kept)))
            level += 1
        return levels

    def _seen(self, ledger: Ledger, position: Position | None) -> dict[str, Entry]:
        """The files read up to a position. Error: STREAM_LOST."""
        found: dict[str, Entry] = {}
        for _, name in position["seen"] if position else ():
            try:
                found |= ledger.read(name)
            except FileNotFoundError as error:
                raise StreamSqlError(
                    "STREAM_LOST",
                    f"{self.name}: the list of files that were read is missing",
                    given=f"{ledger.folder} has no list {name}",
                    hint="`dbt run --full-refresh` of this model reads all files again",
                    place=self.place,
                ) from error
        return found

    def _check(self, there: Mapping[str, Entry], seen: Mapping[str, Entry]) -> None:
        if self.on_rewrite == IGNORE:
            return
        for path, entry in seen.items():
            if path in there and there[path] != entry:
                raise self._changed(entry, "was rewritten after it was read")

    def _changed(self, entry: Entry, what: str) -> StreamSqlError:
        return StreamSqlError(
            "STREAM_CHANGED",
            f"{self.name}: a file {what}",
            given=entry.path,
            allowed="files that appear complete and do not change",
            hint="write files elsewhere and rename them into the folder; `min_age` waits for "
            "files that are written in place, and `on_rewrite: ignore` ignores later changes "
            "to a file",
            place=self.place,
        )

    def _files(self, spark: SparkSession) -> Files:
        return files_of(spark, self.path, self.place)

    def _ledger(self, spark: SparkSession) -> Ledger:
        """Where the lists are. Error: CONFIG_INVALID when no folder is set."""
        folder = self.ledger
        if folder is None and self.table:
            name = TableName.parse(self.table)
            root = warehouse_of(spark, name.catalog)
            # Lists are written by Hadoop, which mostly knows S3 by another scheme than Iceberg.
            if root and not reaches(spark, root):
                root = re.sub("^s3://", "s3a://", root)
            folder = f"{root.rstrip('/')}/_streams/{name.schema}.{name.table}" if root else None
        if folder is None:
            raise StreamSqlError(
                "CONFIG_INVALID",
                f"{self.name}: no folder is set for the list of files that were read",
                given="Spark's catalog has no `warehouse`",
                allowed="`ledger`: a folder, one for each table",
                place=self.place,
            )
        return Ledger(spark, folder)


def source(options: Options) -> FileStream:
    """Error: CONFIG_INVALID."""
    path = options.text("path", allowed="a folder, or a pattern such as /data/in/*.json")
    start = options.start()
    most = options.integer("max_files_per_barrier", None)
    age = options.seconds("min_age", 0.0)
    rewrite = options.choice("on_rewrite", (FAIL, IGNORE), FAIL)
    ledger = options.text("ledger", None)
    reader = file_reader.reader_of(options, FORMATS)
    options.check()
    return FileStream(
        path=path,
        format=str(options.format),
        reader=reader,
        start=start,
        most=most,
        min_age=age,
        on_rewrite=rewrite,
        ledger=ledger,
        table=options.reader,
        place=options.place,
    )
