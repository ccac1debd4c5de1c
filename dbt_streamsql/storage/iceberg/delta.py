"""Commit a small change from the driver: one data file, deletion vectors, one new snapshot.

A Spark statement that writes a thousand rows spends its time on planning, tasks and a commit for
each kind of write. The driver holds the rows already, so it writes them itself, with Iceberg's own
writers and through the table's own file access. Needs a JVM in reach: not over Spark Connect.
"""

from __future__ import annotations

import json
import re
import struct
import uuid
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from dbt_streamsql.quoting import TableName
from dbt_streamsql.storage.iceberg.access import tables_of
from dbt_streamsql.storage.iceberg.files import parquet
from dbt_streamsql.storage.iceberg.java import items, java_class, java_table, scan_tasks
from dbt_streamsql.storage.iceberg.metadata import Metadata
from dbt_streamsql.storage.iceberg.stamp import Stamp

_TYPES: Mapping[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", "UTC"),
    "string": pa.string(),
    "binary": pa.binary(),
}
_DECIMAL = re.compile(r"decimal\((\d+),\s*(\d+)\)")
_ICEBERG = "org.apache.iceberg"
_MAGIC = struct.pack("<I", 1681511377)


@dataclass(frozen=True)
class Delta:
    """Rows to add, with the table's columns, and rows to take away: data file -> positions.

    A file is told by its path, or by the CRC-32 of that.
    """

    rows: pa.Table
    gone: Mapping[str, Sequence[int]] | Mapping[int, Sequence[int]]


class FilesUnknown(Exception):
    """A snapshot has not one file for each that rows are to be taken from."""


def supported(spark: SparkSession, meta: Metadata) -> bool:
    """Whether the table can be written from the driver."""
    if meta.partitioning or meta.format_version < 3 or not tables_of(spark).writes_files:
        return False
    return all(_arrow_type(kind) is not None for kind in meta.types)


def commit(
    spark: SparkSession, name: TableName, branch: str, base: int, origin: Stamp, delta: Delta
) -> None:
    """Make a branch at the snapshot `base` and put the change on it, in one commit.

    Error: `FilesUnknown`.
    """
    table = java_table(spark, name)
    transaction = table.newTransaction()
    manage = transaction.manageSnapshots()
    make = manage.replaceBranch if table.refs().containsKey(branch) else manage.createBranch
    make(branch, base).commit()
    change = transaction.newRowDelta().toBranch(branch).validateFromSnapshot(base)
    for key, value in origin.properties().items():
        change.set(key, value)
    if delta.rows.num_rows:
        change.addRows(_data_file(spark, table, delta.rows))
    if delta.gone:
        vectors = _vectors(spark, table, base, delta.gone)
        for file in items(vectors.deleteFiles()):
            change.addDeletes(file)
        for file in items(vectors.rewrittenDeleteFiles()):
            change.removeDeletes(file)
    change.commit()
    transaction.commitTransaction()


def _fields(spark: SparkSession, table: Any) -> list[dict[str, Any]]:
    parser = java_class(spark, f"{_ICEBERG}.SchemaParser")
    schema = json.loads(parser.toJson(table.schema()))
    found: list[dict[str, Any]] = schema["fields"]
    return found


def _arrow_type(iceberg: Any) -> pa.DataType | None:
    """The Arrow type that is written for an Iceberg type; None for one that only Spark writes."""
    if not isinstance(iceberg, str):
        return None
    decimal = _DECIMAL.fullmatch(iceberg)
    if decimal:
        return pa.decimal128(int(decimal[1]), int(decimal[2]))
    return _TYPES.get(iceberg)


def _data_file(spark: SparkSession, table: Any, rows: pa.Table) -> Any:
    """Write the rows with the table's field ids and describe the file as Iceberg wants it."""
    fields = [
        pa.field(
            field["name"],
            _arrow_type(field["type"]),
            nullable=not field["required"],
            metadata={"PARQUET:field_id": str(field["id"])},
        )
        for field in _fields(spark, table)
    ]
    schema = pa.schema(fields)
    content = parquet(rows.select(schema.names).cast(schema))
    path = table.locationProvider().newDataLocation(f"{uuid.uuid4()}.parquet")
    stream = table.io().newOutputFile(path).create()
    stream.write(content)
    stream.close()
    written = table.io().newInputFile(path)
    config = java_class(spark, f"{_ICEBERG}.MetricsConfig").forTable(table)
    metrics = java_class(spark, f"{_ICEBERG}.parquet.ParquetUtil").fileMetrics(written, config)
    builder = java_class(spark, f"{_ICEBERG}.DataFiles").builder(table.spec())
    return builder.withInputFile(written).withFormat("PARQUET").withMetrics(metrics).build()


def _vectors(spark: SparkSession, table: Any, base: int, gone: Mapping[Any, Sequence[int]]) -> Any:
    """Write one deletion vector a data file, which takes in the one that the file has.

    Error: `FilesUnknown`.
    """
    spec = table.spec()
    known = java_class(spark, "java.util.HashMap")()
    paths = []
    for task in scan_tasks(table, base):
        path = str(task.file().location())
        told = path if path in gone else zlib.crc32(path.encode())
        if told not in gone:
            continue
        paths.append((path, gone[told]))
        deletes = task.deletes()
        if not deletes.isEmpty():
            vector = deletes.get(0)
            inputs = java_class(spark, "java.util.HashMap")()
            inputs.put(vector, table.io().newInputFile(vector.location()))
            loader = java_class(spark, f"{_ICEBERG}.data.BaseDeleteLoader")(
                _function(spark, inputs)
            )
            vectors = java_class(spark, "java.util.List").of(vector)
            known.put(path, loader.loadPositionDeletes(vectors, path))
    if len(paths) != len(gone):
        raise FilesUnknown
    factory = java_class(spark, f"{_ICEBERG}.io.OutputFileFactory").builderFor(table, 1, 1)
    puffin = java_class(spark, f"{_ICEBERG}.FileFormat").valueOf("PUFFIN")
    files = factory.format(puffin).build()
    writer = java_class(spark, f"{_ICEBERG}.deletes.BaseDVFileWriter")(
        files, _function(spark, known)
    )
    for path, positions in paths:
        writer.delete(path, _index(spark, spec, path, positions), spec, None)
    writer.close()
    return writer.result()


def _index(spark: SparkSession, spec: Any, path: str, positions: Sequence[int]) -> Any:
    """Positions as Iceberg's bitmap, by way of its serialized form: one call, not one a row.

    Layout: https://iceberg.apache.org/puffin-spec/#deletion-vector-v1-blob-type
    """
    gateway: Any = spark.sparkContext._gateway
    buffers = java_class(spark, "java.nio.ByteBuffer")
    values = gateway.new_array(gateway.jvm.int, len(positions))
    packed = struct.pack(f">{len(positions)}i", *positions)
    buffers.wrap(packed).asIntBuffer().get(values)
    bitmap = java_class(spark, "org.roaringbitmap.RoaringBitmap").bitmapOf(values)
    room = buffers.allocate(bitmap.serializedSizeInBytes())
    bitmap.serialize(room)
    body = _MAGIC + struct.pack("<QI", 1, 0) + bytes(room.array())
    blob = struct.pack(">I", len(body)) + body + struct.pack(">I", zlib.crc32(body))
    described = (
        java_class(spark, f"{_ICEBERG}.FileMetadata")
        .deleteFileBuilder(spec)
        .ofPositionDeletes()
        .withFormat("PUFFIN")
        .withPath(path)
        .withFileSizeInBytes(len(blob))
        .withReferencedDataFile(path)
        .withContentOffset(0)
        .withContentSizeInBytes(len(blob))
        .withRecordCount(bitmap.getLongCardinality())
        .build()
    )
    index = java_class(spark, f"{_ICEBERG}.deletes.PositionDeleteIndex")
    return index.deserialize(blob, described)


def _function(spark: SparkSession, values: Any) -> Any:
    """A Java map as a Java function that gives null for what it does not hold."""
    return java_class(spark, "com.google.common.base.Functions").forMap(values, None)
