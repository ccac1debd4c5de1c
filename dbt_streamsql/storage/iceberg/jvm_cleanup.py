"""What Iceberg's readers leave behind in the JVM, where a runner lives for months.

Every Parquet file that is read by columns gets its own memory allocator. Iceberg 1.12 still never
closes it (apache/iceberg#13937), and its parent keeps it: some 700 bytes per file, gigabytes in
weeks. Here they are closed once nothing reads with them any more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dbt_streamsql.storage.java import is_connect, items, java_class

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def close_idle(spark: SparkSession, many: int) -> int:
    """Close the allocators of readers that have ended, if there are at least `many`; returns the
    number closed.

    Only those in this process's JVM, so none over Spark Connect or on a cluster's executors.
    Never one in use: it does nothing while there is a Spark job, and a job that begins meanwhile
    creates its own allocators.
    """
    if is_connect(spark):
        return 0
    context: Any = spark.sparkContext
    running = context._jsc.sc()
    if not running.isLocal():
        return 0
    root = java_class(spark, "org.apache.iceberg.arrow.ArrowAllocation").rootAllocator()
    found = root.getChildAllocators()
    # In this order: a reader with one of these allocators has a job, or has ended.
    if found.size() < many or running.dagScheduler().activeJobs().nonEmpty():
        return 0
    idle = found if root.getAllocatedMemory() == 0 else _without_memory(spark, found)
    tools = "org.apache.iceberg.shaded.org.apache.arrow.util.AutoCloseables"
    java_class(spark, tools).close(idle)
    return int(idle.size())


def _without_memory(spark: SparkSession, allocators: Any) -> Any:
    """Excludes those with memory: of tasks that outlive their cancelled job, or of a reader that
    has leaked it."""
    lists = java_class(spark, "java.util.ArrayList")
    idle = lists()
    for allocator in items(lists(allocators)):
        if not allocator.getAllocatedMemory():
            idle.add(allocator)
    return idle
