"""The files of a folder, and lists of those that were read.

Local files are inspected directly. Spark finds all others, so this works for every file system
that Spark reaches, and over Spark Connect.
"""

from __future__ import annotations

import glob
import json
import os
import re
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from pyspark.errors import PySparkException

from dbt_streamsql.errors import Place, StreamSqlError
from dbt_streamsql.storage.iceberg.files import delete_folder
from dbt_streamsql.storage.java import is_connect

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_WILD = re.compile(r"[*?\[]")
_SPECIAL = re.compile(r"([\\*?\[\]{}])")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_LIST = re.compile(r"(\d+)-[0-9a-f]{12}")


@dataclass(frozen=True)
class Entry:
    """A file; `modified` is in milliseconds since 1970, `size` in bytes. The path of a local file
    has no scheme."""

    path: str
    modified: int
    size: int

    @property
    def order(self) -> tuple[int, str]:
        """Oldest first."""
        return self.modified, self.path


class Files(Protocol):
    """A file system."""

    def list(self, path: str) -> dict[str, Entry]:
        """All files of a folder at any depth, or those matching a pattern, by path. As in Spark,
        names that start with `_` or `.` are skipped. Error: TABLE_MISSING for no folder."""

    def look(self, paths: Sequence[str]) -> dict[str, Entry]:
        """Those of the files that exist."""


def files_of(spark: SparkSession, path: str, place: Place) -> Files:
    return LocalFiles(place) if local(path) is not None else SparkFiles(spark, place)


def local(path: str) -> str | None:
    """The local path; None when it is elsewhere."""
    if path.startswith("file:"):
        return "/" + path.removeprefix("file:").lstrip("/")
    return None if _SCHEME.match(path) else str(Path(path).expanduser().absolute())


def base_of(path: str) -> str:
    """The common prefix of all files of a path, up to a slash."""
    whole = local(path) or path
    wild = _WILD.search(whole)
    if wild is None:
        return whole.rstrip("/") + "/"
    return whole[: whole.rindex("/", 0, wild.start()) + 1]


def literal_paths(entries: Iterable[Entry]) -> list[str]:
    """Paths for Spark's readers, which treat some characters as a pattern."""
    return [_SPECIAL.sub(r"\\\1", entry.path) for entry in entries]


class LocalFiles:
    """Local files."""

    def __init__(self, place: Place) -> None:
        self._place = place

    def list(self, path: str) -> dict[str, Entry]:
        whole = local(path) or path
        wild = _WILD.search(whole) is not None
        if not wild and not Path(whole).exists():
            raise _missing(whole, self._place)
        found: dict[str, Entry] = {}
        for root in glob.glob(whole) if wild else [whole]:  # noqa: PTH207 - gives texts
            for entry in _walked(root):
                found[entry.path] = entry
        return found

    def look(self, paths: Sequence[str]) -> dict[str, Entry]:
        found = {}
        for path in paths:
            try:
                found[path] = _entry(path, os.stat(path))  # noqa: PTH116 - a hundred thousand
            except FileNotFoundError:
                continue
        return found


class SparkFiles:
    """Files of any file system that Spark reaches."""

    def __init__(self, spark: SparkSession, place: Place) -> None:
        self._spark = spark
        self._place = place

    def list(self, path: str) -> dict[str, Entry]:
        try:
            return self._collected(self._reader().load(path))
        except PySparkException as error:
            if error.getCondition() == "PATH_NOT_FOUND":
                if _WILD.search(path):
                    return {}
                raise _missing(path, self._place) from error
            raise

    def look(self, paths: Sequence[str]) -> dict[str, Entry]:
        entries = [Entry(path, 0, 0) for path in paths]
        # A hundred at a time: one missing file makes Spark refuse them all.
        found: dict[str, Entry] = {}
        for at in range(0, len(entries), 100):
            found |= self._looked(entries[at : at + 100])
        return found

    def _looked(self, entries: Sequence[Entry]) -> dict[str, Entry]:
        try:
            return self._collected(self._reader().load(literal_paths(entries)))
        except PySparkException as error:
            if error.getCondition() != "PATH_NOT_FOUND":
                raise
            if len(entries) == 1:
                return {}
        half = len(entries) // 2
        return self._looked(entries[:half]) | self._looked(entries[half:])

    def _reader(self) -> Any:
        return self._spark.read.format("binaryFile").option("recursiveFileLookup", "true")

    def _collected(self, frame: DataFrame) -> dict[str, Entry]:
        from pyspark.sql import functions as F

        found = frame.select("path", F.unix_millis("modificationTime"), "length").collect()
        entries = [Entry(_plain(row[0]), int(row[1]), int(row[2])) for row in found]
        return {entry.path: entry for entry in entries}


class Ledger:
    """Lists of files in a folder. Each list has its own name and never changes."""

    def __init__(self, spark: SparkSession, folder: str) -> None:
        self._spark = spark
        self.folder = folder
        self._local = local(folder)

    def write(self, entries: Iterable[Entry]) -> str:
        """Write a new list durably; return its name."""
        name = f"{int(time.time())}-{uuid.uuid4().hex[:12]}"
        rows = [[entry.path, entry.modified, entry.size] for entry in entries]
        if self._local is None:
            frame = self._spark.createDataFrame(rows, "path STRING, modified BIGINT, size BIGINT")
            frame.coalesce(1).write.mode("error").parquet(f"{self.folder}/{name}")
            return name
        folder = Path(self._local)
        folder.mkdir(parents=True, exist_ok=True)
        temporary = folder / f".{name}"
        with temporary.open("w", encoding="utf-8") as out:
            json.dump(rows, out)
            out.flush()
            os.fsync(out.fileno())
        temporary.replace(folder / name)
        return name

    def read(self, name: str) -> Mapping[str, Entry]:
        """The files of a list. Error: FileNotFoundError."""
        if self._local is not None:
            return _listed(str(Path(self._local) / name))
        try:
            rows = self._spark.read.parquet(f"{self.folder}/{name}").collect()
        except PySparkException as error:
            if error.getCondition() == "PATH_NOT_FOUND":
                raise FileNotFoundError(name) from error
            raise
        return {row.path: Entry(row.path, row.modified, row.size) for row in rows}

    def clean(self, kept: set[str], age: float) -> None:
        """Remove lists that are older than `age` seconds and not in `kept`."""
        for name in self._names():
            written = _LIST.fullmatch(name)
            if written and name not in kept and int(written[1]) < time.time() - age:
                if self._local is not None:
                    (Path(self._local) / name).unlink(missing_ok=True)
                else:
                    delete_folder(self._spark, f"{self.folder}/{name}")

    def _names(self) -> list[str]:
        if self._local is not None:
            return [found.name for found in Path(self._local).iterdir()]
        if is_connect(self._spark):
            return []  # nothing could be deleted
        from dbt_streamsql.storage.iceberg.files import names

        return names(self._spark, self.folder)


@lru_cache(maxsize=128)
def _listed(file: str) -> Mapping[str, Entry]:
    rows = json.loads(Path(file).read_text(encoding="utf-8"))
    return {path: Entry(path, modified, size) for path, modified, size in rows}


def _walked(root: str) -> Iterator[Entry]:
    """The files below a folder; a single file yields itself."""
    waiting = [root]
    if not os.path.isdir(root):  # noqa: PTH112 - texts all along
        waiting = []
        if not _hidden(os.path.basename(root)):  # noqa: PTH119 - texts all along
            yield from _found(root)
    while waiting:
        with os.scandir(waiting.pop()) as inside:
            for each in inside:
                if _hidden(each.name):
                    continue
                if each.is_dir():
                    waiting.append(each.path)
                else:
                    yield from _found(each.path)


def _found(path: str) -> Iterator[Entry]:
    try:
        yield _entry(path, os.stat(path))  # noqa: PTH116 - a hundred thousand
    except FileNotFoundError:
        return  # it was deleted meanwhile


def _entry(path: str, found: os.stat_result) -> Entry:
    return Entry(path, found.st_mtime_ns // 1_000_000, found.st_size)


def _hidden(name: str) -> bool:
    return name.startswith(("_", "."))


def _plain(path: str) -> str:
    return local(path) or path if path.startswith("file:") else path


def _missing(path: str, place: Place) -> StreamSqlError:
    return StreamSqlError(
        "TABLE_MISSING",
        "the folder whose files are read as a stream does not exist",
        given=path,
        hint="create the folder, or correct `path`",
        place=place,
    )
