"""Versioned tables of files (Parquet, CSV, JSON …): the list of their files is the version.

The changes since a version are the new files, which are read separately. A removed or rewritten
file makes the version lost: its rows no longer exist.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from weakref import WeakKeyDictionary

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Row, SparkSession

from dbt_streamsql.errors import Place, StreamSqlError
from dbt_streamsql.plan.algebra.schema import WEIGHT
from dbt_streamsql.quoting import TableName, literal, quote
from dbt_streamsql.storage.iceberg.files import place
from dbt_streamsql.storage.iceberg.metadata import Metadata, Snapshot
from dbt_streamsql.storage.iceberg.scans.changes import UNCOUNTED, Change
from dbt_streamsql.storage.inputs.file_listing import (
    FRESH,
    File,
    Listing,
    number_of,
)
from dbt_streamsql.storage.inputs.file_rows import RowCount
from dbt_streamsql.storage.inputs.unversioned import LISTED
from dbt_streamsql.storage.java import (
    is_connect,
    java_class,
    partitions_of,
    reads_files,
)

FORMAT = "files"
_CATALOG = "spark_catalog"
HIDDEN = "_metadata"
"""Spark's hidden column with the source file of each row."""

MANY_FILES = 10_000
"""Above this a version is too long for a query: each read of a table names its files."""

MANY_PARTITIONS = 1_000
"""Above this, listing the folder of each takes too long."""

_ROW = 10
"""Bytes that a row may take: a guess, for choosing strategies."""

_CACHED = "spark.sql.filesourceTableRelationCacheSize"
_FACTS = re.compile(
    r"path=([^;]*); isDirectory=(?:(true)|false; length=(\d+); replication=\d+; blocksize=\d+); "
    r"modification_time=(\d+);"
)
"""A file or folder, as Hadoop prints it; no path with a semicolon."""

_PLAIN = re.compile(r"[A-Za-z0-9_.=+/:-]*")
"""Paths that are the same as their URI."""

_PATTERN = re.compile(r"[*?\[\]{}\\]")
_checked: WeakKeyDictionary[SparkSession, set[str]] = WeakKeyDictionary()
_READ_ALL_THE_SAME = ("_metadata", "_common_metadata")


class NoVersionsError(StreamSqlError):
    """A table of files whose list does not show what was added: `why`."""

    def __init__(self, name: TableName, why: str) -> None:
        self.why = why
        super().__init__(
            "SQL_UNSUPPORTED",
            f"{name} has no versions",
            given=why,
            allowed="Iceberg and Delta tables, and tables of files whose listing shows new files",
            place=Place(str(name)),
        )


@dataclass(frozen=True)
class FileTable(Metadata):
    """A table of files: `listing` are its current ones, `count` bounds the rows of some."""

    listing: Listing = field(default_factory=lambda: Listing(0, ()))
    count: Callable[[Sequence[File]], int | None] = field(
        default=lambda _: None, compare=False, repr=False
    )

    def files(self, version: int | None) -> tuple[File, ...] | None:
        """The files of a version, None when it is lost."""
        if version is None:
            return ()
        came = self.listing.came(version)
        return None if came is None else _without(self.listing.files, came)

    def came(self, old: int | None, new: int | None) -> tuple[File, ...] | None:
        """The files that a version has and an older one does not; None when one of them is lost,
        or the older one has other files."""
        before, after = self.files(old), self.files(new)
        if before is None or after is None or not set(before) <= set(after):
            return None
        return _without(after, before)

    def lineage(self, newest: int | None, oldest: int | None) -> list[Snapshot] | None:
        """See `Metadata.lineage`: each new file counts as a commit."""
        came = self.came(oldest, newest)
        return None if came is None else [_snapshot(file.number, [file]) for file in came]


@dataclass
class Versions(Mapping[int, Snapshot]):
    """The versions of a table that its files give, made on demand."""

    listing: Listing
    known: dict[int, Snapshot] = field(default_factory=dict)

    def __getitem__(self, key: int) -> Snapshot:
        if key not in self.known:
            came = self.listing.came(key)
            if came is None:
                raise KeyError(key)
            self.known[key] = _snapshot(key, _without(self.listing.files, came))
        return self.known[key]

    def __iter__(self) -> Iterator[int]:
        return iter(() if self.listing.number is None else (self.listing.number,))

    def __len__(self) -> int:
        return len(list(iter(self)))


def _without(files: Iterable[File], others: Iterable[File]) -> tuple[File, ...]:
    left_out = set(others)
    return tuple(file for file in files if file not in left_out)


def _snapshot(number: int, files: Sequence[File]) -> Snapshot:
    size = sum(file.size for file in files)
    summary = {
        "total-data-files": str(len(files)),
        "total-files-size": str(size),
        "total-records": str(-(-size // _ROW)),
    }
    committed = max((file.modified for file in files), default=0)
    return Snapshot(number, None, 0, "append", summary, committed=committed)


def load(
    spark: SparkSession, name: TableName, rows: Sequence[Row], facts: Mapping[str, str]
) -> FileTable | None:
    """The versions of a table of files; None when it is not one. `rows` and `facts` are its
    description. Error: NoVersionsError.
    """
    kind = facts.get("Provider", "").lower()
    if kind not in LISTED or name.catalog.lower() != _CATALOG:
        return None
    if is_connect(spark):
        raise NoVersionsError(name, "its files cannot be listed over Spark Connect")
    columns = _columns(rows)
    if any(column.lower() == HIDDEN for column, _ in columns):
        raise NoVersionsError(name, f"it has a column {HIDDEN}, a name that Spark uses itself")
    options = facts.get("Storage Properties", "")
    parts = (kind, facts.get("Location", ""), options, columns)
    files = _listed(spark, name, facts, options)
    if len(files) > MANY_FILES:
        raise NoVersionsError(name, f"it has {len(files):,} files, more than {MANY_FILES:,}")
    look_again(spark, [name])
    _check_names(spark, name, facts["Location"], files)
    listing, schema = Listing.of(number_of(*parts), files), number_of(columns)
    return FileTable(
        uuid=f"{listing.table:x}",
        location=facts["Location"],
        format_version=0,
        schema_id=schema,
        current=listing.number,
        snapshots=Versions(listing),
        refs={},
        schemas={schema: tuple({"name": column, "type": of} for column, of in columns)},
        format=FORMAT,
        listing=listing,
        count=RowCount(spark, kind, options),
    )


def look_again(spark: SparkSession, names: Iterable[TableName]) -> None:
    """Let a session forget its file lists of some tables, if it caches any.

    With an old list it would miss files of a version.
    """
    if str(spark.conf.get(_CACHED)) != "0":
        for name in names:
            spark.catalog.refreshTable(name.sql)


def as_read(meta: FileTable, now: int) -> FileTable:
    """The table when read at `now` (milliseconds since 1970)."""
    return replace(meta, current=meta.listing.number_at(now))


def classify(meta: FileTable, old: int | None, new: int | None) -> Change:
    """How to get from one version to another: nothing, or the new files.

    `lost` when files were removed or rewritten, or may have been.
    """
    if new is None:
        return Change("none" if old is None else "lost", old, new)
    came = None if old is not None and old & FRESH else meta.came(old, new)
    if came is None:
        return Change("lost", old, new)
    if not came:
        return Change("none", old, new)
    rows = meta.count(came)
    return Change("append", old, new, UNCOUNTED if rows is None else rows)


def why_lost(source: str, old: int | None) -> str:
    """Why a version is lost."""
    if old is not None and old & FRESH:
        return f"a file of {source} was so new that it may have been replaced since it was read"
    return f"files of {source} were removed or rewritten, or it was altered since it was read"


def version(name: TableName, meta: FileTable, number: int | None) -> str:
    """The SQL of the table at a version. Error: CONSISTENCY_UNAVAILABLE, its files are gone."""
    files = meta.files(number)
    if files is None:
        raise StreamSqlError(
            "CONSISTENCY_UNAVAILABLE",
            f"a version of {name} is gone",
            given="files of it were removed or rewritten",
            hint="refresh the views that read it (`dbt run`, or Engine.advance())",
            place=Place(str(name)),
        )
    return f"(SELECT * FROM {name.sql} WHERE {_of(files)})"


def feed(name: TableName, meta: FileTable, change: Change, columns: tuple[str, ...]) -> str:
    """The rows of the new files, `columns` and the weight: SQL that may follow FROM."""
    came = meta.came(change.old, change.new)
    assert came is not None
    names = ", ".join(quote(column) for column in columns)
    return f"(SELECT {names}, 1L AS {WEIGHT} FROM {name.sql} WHERE {_of(came)})"


def _of(files: Sequence[File]) -> str:
    """The condition that a row is from one of some files: Spark reads no others."""
    if not files:
        return "false"
    return f"{HIDDEN}.file_path IN ({', '.join(literal(file.path) for file in files)})"


def _columns(rows: Sequence[Row]) -> tuple[tuple[str, str], ...]:
    """Names and types: the beginning of the description."""
    found = []
    for row in rows:
        if row[0] in ("", "# Partition Information"):
            break
        found.append((str(row[0]), str(row[1])))
    return tuple(found)


def _listed(
    spark: SparkSession, name: TableName, facts: Mapping[str, str], options: str
) -> list[File]:
    location = facts.get("Location", "")
    if _PATTERN.search(location) or "recursivefilelookup" in options.lower():
        raise NoVersionsError(name, "its files are not in one folder")
    try:
        if "Partition Provider" in facts:
            return _in_partitions(spark, name)
        at, system = place(spark, location)
        return _in_folder(spark, name, system.listStatus(at))
    except (PySparkException, Py4JError) as error:
        raise NoVersionsError(name, f"its files cannot be listed ({location})") from error


def _check_names(
    spark: SparkSession, name: TableName, location: str, files: Sequence[File]
) -> None:
    """Check once for each session and place that Spark names files as here: under another name a
    version would silently miss the file."""
    known = _checked.setdefault(spark, set())
    one = next((file for file in files if file.size), None)
    if one is None or location in known:
        return
    try:
        named = reads_files(spark.sql(f"SELECT * FROM {name.sql} WHERE {_of([one])}"))
    except (PySparkException, Py4JError):
        named = False
    if not named:
        raise NoVersionsError(name, f"Spark uses a different name for its file {one.path}")
    known.add(location)


def _in_partitions(spark: SparkSession, name: TableName) -> list[File]:
    """The files of the partitions that the catalog knows, wherever they are."""
    found = partitions_of(spark, name)
    if len(found) > MANY_PARTITIONS:
        raise NoVersionsError(name, f"it has {len(found):,} partitions")
    files = [
        replace(file, partition=values)
        for values, listed in found
        for file in _in_folder(spark, name, listed())
    ]
    if len({file.path for file in files}) < len(files):
        raise NoVersionsError(name, "several of its partitions share a folder")
    return files


def _in_folder(spark: SparkSession, name: TableName, found: Any) -> list[File]:
    """The files that Spark reads, out of Hadoop's list of a folder."""
    text = str(java_class(spark, "org.apache.commons.lang3.ArrayUtils").toString(found))
    entries = _FACTS.findall(text)
    if len(entries) != len(found):
        raise NoVersionsError(name, "a name in its folder contains a semicolon")
    files: list[File] = []
    places: dict[str, str] = {}
    for path, folder, size, modified in entries:
        above, _, last = path.rpartition("/")
        if folder and (last == "_spark_metadata" or not _is_hidden(last)):
            raise NoVersionsError(name, f"its folder contains a subfolder, {last}")
        if not folder and not _is_hidden(last):
            if above not in places:
                places[above] = _address(spark, above)
            plain = _PLAIN.fullmatch(last)
            address = f"{places[above]}/{last}" if plain else _address(spark, path)
            files.append(File(address, int(size), int(modified)))
    return files


def _is_hidden(name: str) -> bool:
    """Whether Spark ignores a file or folder (Spark's HadoopFSUtils)."""
    if name.startswith(_READ_ALL_THE_SAME):
        return False
    beginning = name.startswith("_") and "=" not in name
    return beginning or name.startswith(".") or name.endswith("._COPYING_")


def _address(spark: SparkSession, path: str) -> str:
    """A path as Spark gives it for a row."""
    if _PLAIN.fullmatch(path):
        return path
    found: Any = java_class(spark, "org.apache.hadoop.fs.Path")(path)
    return str(found.toUri().toString())
