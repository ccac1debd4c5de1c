"""Small files of tables stay in memory: `CachingFileIO.java`, where the files are not on this
machine.

An epoch of one view reads the same metadata a dozen times. On a local disk that is nothing; in an
object store each read is a request.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dbt_streamsql.storage.conf import catalog_kind, settings_of
from dbt_streamsql.storage.java import java_class

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CLASS = "org.apache.iceberg.CachingFileIO"
BEHIND = "streamsql.io-impl"
"""The catalog's property that names the FileIO behind."""
BYTES = "streamsql.file-cache-bytes"
"""The catalog's property that limits the memory of the process; 0: nothing is kept."""

_IMPL = "io-impl"
RESOLVING = "org.apache.iceberg.io.ResolvingFileIO"
"""Iceberg's own choice, by the scheme of a location."""
_SERVICES = frozenset({"glue", "rest", "nessie"})
"""Types of catalogs that tell themselves where their tables are."""
_OF_HADOOP = frozenset({"file", "hdfs", "viewfs", "webhdfs"})
"""File systems whose blocks Spark looks up in Hadoop's own files, to read them where they are."""
_TOOLS = "org.apache.iceberg.CatalogUtil"
_SOURCE = Path(__file__).parent / "CachingFileIO.java"


def added_to(properties: Mapping[str, str]) -> dict[str, str]:
    """The properties of a catalog; where its files may be elsewhere, with those by which its small
    files stay in memory."""
    scheme, separator, _ = properties.get("warehouse", "").partition("://")
    remote = bool(separator) and scheme not in _OF_HADOOP
    service = catalog_kind(properties) in _SERVICES
    files = properties.get(_IMPL, RESOLVING)
    if properties.get(BYTES) == "0":
        # A service may name its own.
        return dict(properties) if service or not remote else {**properties, _IMPL: files}
    if not remote and not service:
        return dict(properties)
    return {**properties, _IMPL: CLASS, BEHIND: files}


def define(spark: SparkSession) -> None:
    """Let catalogs of this process find the class by its name; not over Spark Connect.

    It is defined beside Iceberg's own classes, in their class loader: that is where a catalog
    looks for its `io-impl`, and where tasks of this process read it.
    """
    from py4j.protocol import Py4JJavaError

    neighbor = java_class(spark, _TOOLS)._java_lang_class  # noqa: SLF001 - no public getter
    loader = neighbor.getClassLoader()
    try:
        loader.loadClass(CLASS)
    except Py4JJavaError:
        compiler = java_class(spark, "org.codehaus.janino.SimpleCompiler")()
        compiler.setParentClassLoader(loader)
        compiler.cook(_SOURCE.read_text())
        handles = java_class(spark, "java.lang.invoke.MethodHandles")
        inside = handles.privateLookupIn(neighbor, handles.lookup())
        for content in compiler.getBytecodes().values():
            inside.defineClass(content)


def file_io(spark: SparkSession, catalog: str) -> Any:
    """What a catalog reads and writes files with, by its settings in Spark."""
    prefix, own = f"spark.sql.catalog.{catalog}.", java_class(spark, "java.util.HashMap")()
    for key, value in settings_of(spark).items():
        if key.startswith(prefix):
            own.put(key.removeprefix(prefix), value)
    context: Any = spark._jsc  # noqa: SLF001 - no public getter
    files = own.get(_IMPL) or RESOLVING
    return java_class(spark, _TOOLS).loadFileIO(files, own, context.hadoopConfiguration())
