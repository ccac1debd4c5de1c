"""Work that takes many Java calls, as one call of the gateway: `GatewayWork.java`.

A call takes a fraction of a millisecond, and each returned object another one when Python
releases it; an epoch of forty views took fifteen thousand. Spark's own Janino compiles the class
on first use, which takes as long as a hundred calls.
"""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from dbt_streamsql.quoting import TableName

_SOURCE = Path(__file__).parent / "GatewayWork.java"

Positions = NDArray[np.int64]
"""Numbers of rows in a file."""

_PIECE = 3500
"""Characters of a response that fit into one write of the gateway. A longer one is sent in two,
and the second waits 40 ms for the first to be acknowledged (Nagle's algorithm with delayed
acknowledgement)."""
_PIECES, _REST = 16, 8 << 20
"""After so many pieces, those that follow have so many characters: waiting takes less then."""


def metadata(spark: SparkSession, name: TableName) -> str:
    """The metadata file of a table as JSON."""
    work = _work(spark)
    return _whole(work, work.metadata(_session(spark), name.sql, _PIECE)).decode()


def live_files(spark: SparkSession, name: TableName, snapshot: int) -> dict[str, Positions] | None:
    """The data files of a snapshot, each with the positions of its deleted rows.

    None unless all are Parquet, with no deletes but one deletion vector each, and the table still
    has the columns of the snapshot.
    """
    work = _work(spark)
    text = work.files(_session(spark), name.sql, snapshot, _PIECE)
    if text is None:
        return None
    packed, at, found = _whole(work, text), 0, {}
    while at < len(packed):
        path, found[path], at = _file_at(packed, at)
    return found


@dataclass(frozen=True)
class ChangedFile:
    """A data file of a snapshot, `added` since an older one, or there before; and the positions of
    its deleted rows: of a file that was there before, of those that the older snapshot has."""

    path: str
    added: bool
    deleted: Positions


def changed_files(
    spark: SparkSession, name: TableName, old: int, snapshot: int, sequence: int
) -> list[ChangedFile] | None:
    """The files in which the change between two snapshots is; `sequence`: the number of the older
    one. None as for `live_files`."""
    work = _work(spark)
    text = work.changes(_session(spark), name.sql, old, snapshot, sequence, _PIECE)
    if text is None:
        return None
    packed, at, found = _whole(work, text), 0, []
    while at < len(packed):
        added = bool(packed[at])
        path, deleted, at = _file_at(packed, at + 1)
        found.append(ChangedFile(path, added, deleted))
    return found


def _file_at(packed: bytes, at: int) -> tuple[str, Positions, int]:
    """A file and its positions, and where the next one begins."""
    (length,) = struct.unpack_from(">i", packed, at)
    path = packed[at + 4 : at + 4 + length].decode()
    at += 4 + length
    (count,) = struct.unpack_from(">i", packed, at)
    positions = np.frombuffer(packed, ">i8", count, at + 4).astype(np.int64)
    return path, positions, at + 4 + 8 * count


def _whole(work: Any, text: str) -> bytes:
    """A response that was deflated, and sent in pieces where it is long."""
    pieces = []
    while True:
        piece, _, ticket = text.partition(" ")
        pieces.append(piece)
        if not ticket:
            return zlib.decompress(base64.b64decode("".join(pieces)))
        text = work.more(ticket, _PIECE if len(pieces) < _PIECES else _REST)


def schema(spark: SparkSession, name: TableName) -> str:
    """The columns of a table, with their ids, as JSON."""
    return str(_work(spark).schema(_session(spark), name.sql))


def commit(
    spark: SparkSession,
    name: TableName,
    branch: str,
    base: int,
    summary: Mapping[str, str],
    rows: bytes | None,
    gone: Mapping[Any, Sequence[int]],
) -> str | None:
    """Create a branch at the snapshot `base` and commit a change to it, in one commit.

    `rows`: a Parquet file (None: no new rows); `gone`: data file, by its path or the CRC-32 of
    that, -> positions. Returns the path of the new file, '' if there is none; None if the snapshot
    does not have exactly one file for each of `gone`.
    """
    pairs = b"".join(_text(part) for pair in summary.items() for part in pair)
    places = b"".join(
        _text(str(file)) + struct.pack(f">i{len(positions)}i", len(positions), *positions)
        for file, positions in gone.items()
    )
    work, session = _work(spark), _session(spark)
    content = bytearray(rows) if rows is not None else None
    found = work.commit(
        session, name.sql, branch, base, bytearray(pairs), content, bytearray(places)
    )
    return None if found is None else str(found)


def stage_changed(
    spark: SparkSession, name: TableName, snapshot: int, sequence: int, fresh: str, marked: str
) -> tuple[int, int]:
    """Stage the files of a snapshot that were added after a sequence number as the temporary view
    `fresh`, and the others from which rows were deleted after it as `marked`.

    In addition to the columns both have `_file`, `_pos` and `_deleted`, and those of row lineage,
    where the table has it. Returns the bytes of the files of each.
    """
    bytes_of = _work(spark).changed(_session(spark), name.sql, snapshot, sequence, fresh, marked)
    of_fresh, of_marked = str(bytes_of).split()
    return int(of_fresh), int(of_marked)


def unstage_changed(spark: SparkSession, name: TableName, fresh: str, marked: str) -> None:
    """Discard the views of `stage_changed`, and what they show."""
    _work(spark).unstage(_session(spark), name.sql, fresh, marked)


def staged(spark: SparkSession, table: Any, key: str) -> Any:
    """The files that are staged under a key, as a table of Spark's connector API."""
    return _work(spark).staged(table, key)


def jobs_of(spark: SparkSession, group: str) -> tuple[int, int, dict[str, int]]:
    """The Spark jobs that a group has started, the bytes of input that their stages read, and how
    often they scanned each table, by the name that Spark shows."""
    context: Any = spark.sparkContext._jsc
    told, *scans = str(_work(spark).jobs(context, group)).split("\n")
    jobs, read = map(int, told.split())
    found = (scan.partition(" ") for scan in scans)
    return jobs, read, {table: int(times) for times, _, table in found}


def _session(spark: SparkSession) -> Any:
    return spark._jsparkSession


def _text(value: str) -> bytes:
    encoded = value.encode()
    return struct.pack(">i", len(encoded)) + encoded


def _work(spark: SparkSession) -> Any:
    context: Any = spark.sparkContext
    return _compiled(context._gateway)


@lru_cache(maxsize=1)
def _compiled(gateway: Any) -> Any:
    """An object of the class, from Iceberg's own class loader, which may differ from
    Spark's.

    Each compilation has its own name: the gateway confuses two classes of one name, and
    threads that come first at the same time compile one each.
    """
    from py4j.java_gateway import JavaClass

    client = gateway._gateway_client
    compiler = JavaClass("org.codehaus.janino.SimpleCompiler", client)()
    tables: Any = JavaClass("org.apache.iceberg.Table", client)
    compiler.setParentClassLoader(tables._java_lang_class.getClassLoader())
    name = f"{_SOURCE.stem}_{uuid4().hex}"
    compiler.cook(_SOURCE.read_text().replace(_SOURCE.stem, name))
    found = compiler.getClassLoader().loadClass(name)
    nothing = gateway.new_array(gateway.jvm.Class, 0)
    none = gateway.new_array(gateway.jvm.Object, 0)
    return found.getDeclaredConstructor(nothing).newInstance(none)
