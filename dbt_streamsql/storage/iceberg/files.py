"""Files beside the tables, on any file system that Spark can reach."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from dbt_streamsql.storage.iceberg.java import is_connect, java_class


def parquet(rows: pa.Table) -> bytes:
    """The rows as one parquet file."""
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink, compression="zstd")
    content: bytes = sink.getvalue().to_pybytes()
    return content


def write(spark: SparkSession, path: str, content: bytes) -> None:
    """Write a file from the driver; not over Spark Connect."""
    place, files = _place(spark, path)
    stream = files.create(place)
    stream.write(content)
    stream.close()


def read(spark: SparkSession, path: str) -> bytes:
    """The content of a small file; not over Spark Connect."""
    place, files = _place(spark, path)
    stream = files.open(place)
    try:
        content: bytes = java_class(spark, "org.apache.commons.io.IOUtils").toByteArray(stream)
        return content
    finally:
        stream.close()


def names(spark: SparkSession, folder: str) -> list[str]:
    """The names of what lies in a folder, none where there is no such folder; over Spark Connect
    only a local one can be seen."""
    if is_connect(spark):
        local = Path(folder.removeprefix("file:"))
        return [found.name for found in local.iterdir()] if local.is_dir() else []
    place, files = _place(spark, folder)
    if not files.exists(place):
        return []
    return [found.getPath().getName() for found in files.listStatus(place)]


def size(spark: SparkSession, folder: str) -> tuple[int, int] | None:
    """How many files a folder holds at any depth, and their bytes; None where it is not known."""
    if is_connect(spark):
        local = Path(folder.removeprefix("file:"))
        sizes = [found.stat().st_size for found in local.rglob("*") if found.is_file()]
        return (len(sizes), sum(sizes)) if local.is_dir() else None
    try:
        place, files = _place(spark, folder)
        found = files.getContentSummary(place)
        return int(found.getFileCount()), int(found.getLength())
    except Py4JError:
        return None  # Iceberg reaches it by another way than Hadoop's


def delete_folder(spark: SparkSession, path: str) -> None:
    """Delete a folder that this warehouse wrote; over Spark Connect only a local one can be.

    Error: OSError when it is still there.
    """
    if is_connect(spark):
        folder = Path(path.removeprefix("file:"))
        shutil.rmtree(folder, ignore_errors=True)
        left = folder.exists()
    else:
        place, files = _place(spark, path)
        # A local file system says nothing but False, also of what was not there.
        left = not files.delete(place, True) and files.exists(place)
    if left:
        raise OSError(f"{path} cannot be deleted")


def rename(spark: SparkSession, old: str, new: str) -> None:
    """Give a folder a name that is free; over Spark Connect only a local one can be.

    Error: OSError.
    """
    if is_connect(spark):
        Path(old.removeprefix("file:")).rename(new.removeprefix("file:"))
        return
    place, files = _place(spark, old)
    # Into a folder of that name it would be moved, and nothing said.
    at = java_class(spark, "org.apache.hadoop.fs.Path")(new)
    if files.exists(at) or not files.rename(place, at):
        raise OSError(f"{old} cannot be renamed to {new}")


def _place(spark: SparkSession, path: str) -> tuple[Any, Any]:
    context: Any = spark._jsc
    place = java_class(spark, "org.apache.hadoop.fs.Path")(path)
    return place, place.getFileSystem(context.hadoopConfiguration())
