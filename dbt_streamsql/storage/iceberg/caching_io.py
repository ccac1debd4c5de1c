"""Small files of tables stay in memory: `CachingFileIO.java`, where the files are not on this
machine.

An epoch of one view reads the same metadata a dozen times. On a local disk that is nothing; in an
object store each read is a request.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dbt_streamsql.storage.conf import catalog_kind

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
    from py4j.java_gateway import JavaClass
    from py4j.protocol import Py4JJavaError

    context: Any = spark.sparkContext
    client = context._gateway._gateway_client  # noqa: SLF001 - no public getter
    beside: Any = JavaClass("org.apache.iceberg.CatalogUtil", client)
    neighbor = beside._java_lang_class  # noqa: SLF001 - no public getter
    loader = neighbor.getClassLoader()
    try:
        loader.loadClass(CLASS)
    except Py4JJavaError:
        compiler = JavaClass("org.codehaus.janino.SimpleCompiler", client)()
        compiler.setParentClassLoader(loader)
        compiler.cook(_SOURCE.read_text())
        handles: Any = JavaClass("java.lang.invoke.MethodHandles", client)
        inside = handles.privateLookupIn(neighbor, handles.lookup())
        for content in compiler.getBytecodes().values():
            inside.defineClass(content)
