"""Classes of Iceberg, Hadoop and Spark in the session's JVM. Over Spark Connect there is none."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from dbt_streamsql.quoting import TableName

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def is_connect(spark: SparkSession) -> bool:
    """Whether the session is a Spark Connect client, which has no JVM."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def java_class(spark: SparkSession, name: str) -> Any:
    """A class by its full name, without asking the JVM about every part of the name."""
    from py4j.java_gateway import JavaClass

    gateway: Any = spark.sparkContext._gateway
    return JavaClass(name, gateway._gateway_client)


def java_table(spark: SparkSession, name: TableName) -> Any:
    """Iceberg's own table object. Catalogs are looked up in the thread's active session."""
    session: Any = spark._jsparkSession
    java_class(spark, "org.apache.spark.sql.classic.SparkSession").setActiveSession(session)
    tables = java_class(spark, "org.apache.iceberg.spark.Spark3Util")
    return tables.loadIcebergTable(session, name.sql)


def java_catalog(spark: SparkSession, name: str) -> Any:
    """Iceberg's own object for one of Spark's catalogs."""
    session: Any = spark._jsparkSession
    tools = java_class(spark, "org.apache.iceberg.spark.Spark3Util")
    return tools.loadIcebergCatalog(session, name)


def partitions_of(spark: SparkSession, name: TableName) -> list[tuple[str, Callable[[], Any]]]:
    """The partitions of a table of Spark's own catalog: an identifier for each, and a function
    that lists its folder."""
    session: Any = spark._jsparkSession
    options = java_class(spark, "scala.Option")
    of = java_class(spark, "org.apache.spark.sql.catalyst.TableIdentifier")
    table = of(name.table, options.apply(name.schema))
    found = session.sessionState().catalog().listPartitions(table, options.empty())
    settings = session.sessionState().newHadoopConf()

    def listed(location: Any) -> Any:
        at = java_class(spark, "org.apache.hadoop.fs.Path")(location)
        return at.getFileSystem(settings).listStatus(at)

    parts = [found.apply(at) for at in range(found.size())]
    return [(str(part.spec().toString()), partial(listed, part.location())) for part in parts]


def reads_files(frame: DataFrame) -> bool:
    """Whether a frame over files has any to read, by Spark's plan; nothing is run."""
    found: Any = frame._jdf
    return bool(found.rdd().getNumPartitions())


def reopen_catalogs(spark: SparkSession) -> None:
    """Let a session recreate its catalogs on next use; what `USE` has chosen stays."""
    session: Any = spark._jsparkSession
    manager = session.sessionState().catalogManager()
    catalog, namespace = manager.currentCatalog().name(), manager.currentNamespace()
    manager.reset()
    manager.setCurrentCatalog(catalog)
    if list(manager.currentNamespace()) != list(namespace):
        manager.setCurrentNamespace(namespace)


def settings_digest(spark: SparkSession) -> int:
    """A number that changes when any setting of the session does; without reading them all."""
    session: Any = spark._jsparkSession
    return int(session.conf().getAll().hashCode())


def java_identifier(spark: SparkSession, name: TableName) -> Any:
    """A name as an identifier of Iceberg's catalogs."""
    gateway: Any = spark.sparkContext._gateway
    levels = gateway.new_array(gateway.jvm.String, 1)
    levels[0] = name.schema
    namespace = java_class(spark, "org.apache.iceberg.catalog.Namespace").of(levels)
    return java_class(spark, "org.apache.iceberg.catalog.TableIdentifier").of(
        namespace, name.table
    )


def moved(frame: DataFrame, session: SparkSession) -> DataFrame:
    """The same query in another session of the same Spark."""
    from pyspark.sql.classic.dataframe import DataFrame

    if is_connect(session):
        return frame
    datasets = java_class(session, "org.apache.spark.sql.classic.Dataset")
    plan: Any = frame._jdf.logicalPlan()
    return DataFrame(datasets.ofRows(session._jsparkSession, plan), session)


def sized(frame: DataFrame, rows: int) -> DataFrame:
    """A frame of so many rows that tasks read, with the size that they would have in a plan:
    Spark takes it for too big for a broadcast otherwise."""
    from pyspark.sql.classic.dataframe import DataFrame

    session: Any = frame.sparkSession
    plan: Any = frame._jdf.logicalPlan()
    options = java_class(session, "scala.Option")
    # Py4J makes Python's numbers of Scala's, of which a size is made: so it is that of a range.
    longs = max(1, rows * plan.schema().defaultSize() // 8)
    size = session._jsparkSession.range(0, longs).logicalPlan().stats()
    relation = java_class(session, "org.apache.spark.sql.execution.LogicalRDD")(
        *(plan.output(), plan.rdd(), plan.outputPartitioning(), plan.outputOrdering(), False),
        *(options.empty(), session._jsparkSession, options.apply(size), options.empty()),
    )
    datasets = java_class(session, "org.apache.spark.sql.classic.Dataset")
    return DataFrame(datasets.ofRows(session._jsparkSession, relation), session)


def frame_of(session: SparkSession, table: Any) -> DataFrame:
    """A frame of all rows and columns of a table of Spark's connector API."""
    from pyspark.sql.classic.dataframe import DataFrame

    none = java_class(session, "scala.Option").empty()
    source = "org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation"
    relation = java_class(session, source).create(table, none, none)
    datasets = java_class(session, "org.apache.spark.sql.classic.Dataset")
    return DataFrame(datasets.ofRows(session._jsparkSession, relation), session)


def number_of(spark: SparkSession, known: Any, *path: tuple[str, str]) -> Any:
    """A Java function from an object to a number, for lists whose elements stay in the JVM.

    `path` are the getters that lead to it, each with its class, loaded by the class loader of
    the object `known`.
    """
    gateway: Any = spark.sparkContext._gateway
    classes = java_class(spark, "java.lang.Class")
    loader = known.getClass().getClassLoader()
    handles = java_class(spark, "java.lang.invoke.MethodHandles")
    lookup, nothing = handles.publicLookup(), gateway.new_array(gateway.jvm.Class, 0)
    whole = None
    for owner, getter in path:
        method = classes.forName(owner, True, loader).getMethod(getter, nothing)
        step = lookup.unreflect(method)
        whole = step if whole is None else handles.filterReturnValue(whole, step)
    function = classes.forName("java.util.function.ToLongFunction")
    proxies = java_class(spark, "java.lang.invoke.MethodHandleProxies")
    return proxies.asInterfaceInstance(function, whole)


def instance_of(spark: SparkSession, found: Any, name: str) -> bool:
    """Whether a Java object is of a class or interface."""
    from py4j.java_gateway import is_instance_of

    context: Any = spark.sparkContext
    return bool(is_instance_of(context._gateway, found, name))


def write_file(spark: SparkSession, place: str, text: str) -> None:
    """Write a text file (UTF-8) in any Hadoop file system, replacing an existing one."""
    session: Any = spark._jsparkSession
    to_path = java_class(spark, "org.apache.hadoop.fs.Path")
    target, beside = to_path(place), to_path(f"{place}.part")
    files = target.getFileSystem(session.sessionState().newHadoopConf())
    stream = files.create(beside, True)
    try:
        stream.write(bytearray(text.encode()))
    finally:
        stream.close()
    # Hadoop's rename does not overwrite.
    files.delete(target, False)
    if not files.rename(beside, target):
        raise OSError(f"{beside} could not be renamed")


def items(found: Any) -> list[Any]:
    """The elements of a Java list. Py4J's own iteration ends by an exception, which is slow."""
    return [found.get(index) for index in range(found.size())]
