"""Files next to the tables, on any file system that Spark can access."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from dbt_streamsql.storage.iceberg.access import tables_of
from dbt_streamsql.storage.java import java_class


def parquet(rows: pa.Table) -> bytes:
    """The rows as one parquet file."""
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink, compression="zstd")
    content: bytes = sink.getvalue().to_pybytes()
    return content


def write(spark: SparkSession, path: str, content: bytes) -> None:
    """Write a file from the driver; not over Spark Connect."""
    at, system = place(spark, path)
    stream = system.create(at)
    stream.write(content)
    stream.close()


def read(spark: SparkSession, path: str) -> bytes:
    """The content of a small file; not over Spark Connect."""
    at, system = place(spark, path)
    stream = system.open(at)
    try:
        content: bytes = java_class(spark, "org.apache.commons.io.IOUtils").toByteArray(stream)
        return content
    finally:
        stream.close()


def read_at(spark: SparkSession, address: str, start: int) -> bytes:
    """The content of a file from an offset on, by its URI; not over Spark Connect."""
    at = java_class(spark, "org.apache.hadoop.fs.Path")(java_class(spark, "java.net.URI")(address))
    context: Any = spark._jsc
    stream = at.getFileSystem(context.hadoopConfiguration()).open(at)
    try:
        stream.seek(start)
        content: bytes = java_class(spark, "org.apache.commons.io.IOUtils").toByteArray(stream)
        return content
    finally:
        stream.close()


def reaches(spark: SparkSession, folder: str) -> bool:
    """Whether files other than those of tables can be written to a folder, and removed from it.

    Not where only Iceberg knows the store, as it does S3 by its own clients; over Spark Connect
    only on this machine.
    """
    return tables_of(spark).folders.reaches(folder)


def names(spark: SparkSession, folder: str) -> list[str]:
    """The names of a folder's entries, none if there is no such folder; over Spark Connect only
    for local folders."""
    return tables_of(spark).folders.names(folder)


def size(spark: SparkSession, folder: str) -> tuple[int, int] | None:
    """The number of files in a folder at any depth, and their bytes; None where unknown."""
    return tables_of(spark).folders.size(folder)


def purge_folder(spark: SparkSession, catalog: str, path: str) -> None:
    """Delete a folder that this warehouse wrote, in the catalog's object store, too.

    Error: OSError.
    """
    if reaches(spark, path):
        delete_folder(spark, path)
    else:
        tables_of(spark).purge(catalog, path)


def delete_folder(spark: SparkSession, path: str) -> None:
    """Delete a folder that this warehouse wrote; over Spark Connect only a local one.

    Error: OSError when it is still there.
    """
    if not tables_of(spark).folders.delete(path):
        raise OSError(f"{path} cannot be deleted")


def rename(spark: SparkSession, old: str, new: str) -> None:
    """Rename a folder to an unused name; over Spark Connect only a local one.

    Error: OSError.
    """
    tables_of(spark).folders.rename(old, new)


def place(spark: SparkSession, path: str) -> tuple[Any, Any]:
    """A path as Hadoop knows it, with its file system; not over Spark Connect."""
    context: Any = spark._jsc
    at = java_class(spark, "org.apache.hadoop.fs.Path")(path)
    return at, at.getFileSystem(context.hadoopConfiguration())
