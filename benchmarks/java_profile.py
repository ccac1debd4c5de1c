"""What Spark's Java does during an epoch: samples of its threads, its compilers, its collector.

The samples are Java Flight Recorder's, every 10 ms of a thread that runs Java. Each is put down to
the first of `KINDS` that has a frame of it. Java's own compilers are native threads: their time,
like the collector's, is what the process tells of itself.
"""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import SparkSession

PERIOD_MS = 10
KINDS = {
    "compiling generated code": ("org.codehaus.",),
    "generating code": (
        "org.apache.spark.sql.catalyst.expressions.codegen.",
        "org.apache.spark.sql.execution.WholeStageCodegenExec.doCodeGen",
    ),
    "parsing": ("org.antlr.", "org.apache.spark.sql.catalyst.parser."),
    "Iceberg: planning and metadata": (
        "org.apache.iceberg.BaseMetastoreTableOperations",
        "org.apache.iceberg.TableMetadata",
        "org.apache.iceberg.ManifestGroup",
        "org.apache.iceberg.ManifestReader",
        "org.apache.iceberg.ManifestLists",
        "org.apache.iceberg.BaseTable",
        "org.apache.iceberg.DataTableScan",
        "org.apache.iceberg.SnapshotScan",
        "org.apache.iceberg.jdbc.",
    ),
    "Iceberg: commits": (
        "org.apache.iceberg.SnapshotProducer",
        "org.apache.iceberg.BaseTransaction",
    ),
    "tasks": ("org.apache.spark.executor.Executor$TaskRunner",),
    "scheduling": ("org.apache.spark.scheduler.", "org.apache.spark.util.EventLoop"),
    "status and listeners": ("org.apache.spark.status.", "org.apache.spark.sql.execution.ui."),
    "optimizing": (
        "org.apache.spark.sql.catalyst.optimizer.",
        "org.apache.spark.sql.execution.SparkOptimizer",
    ),
    "adaptive execution": ("org.apache.spark.sql.execution.adaptive.",),
    "analysis": ("org.apache.spark.sql.catalyst.analysis.",),
    "planning": (
        "org.apache.spark.sql.catalyst.planning.",
        "org.apache.spark.sql.execution.SparkPlanner",
        "org.apache.spark.sql.execution.QueryExecution",
    ),
    "Iceberg, other": ("org.apache.iceberg.",),
    "Spark, other": ("org.apache.spark.",),
    "gateway": ("py4j.",),
}
"""By class or method, as a frame begins. A sample of none of them is `other`."""


class Recording:
    """Samples from now on. To start one makes Java compile a lot anew: warm up after it."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._jvm: Any = spark._jvm  # noqa: SLF001 - Java's own management classes
        period = self._jvm.java.time.Duration.ofMillis(PERIOD_MS)
        self._recording = self._jvm.jdk.jfr.Recording()
        self._recording.enable("jdk.ExecutionSample").withPeriod(period)
        self._recording.start()

    @contextmanager
    def told(self) -> Iterator[Told]:
        """What happens in the block; it is filled in at its end, and the recording is over."""
        told, begun = Told(), self._jvm.java.time.Instant.now()
        before = _counts(self._jvm)
        yield told
        told.compilers, told.collector, told.classes = (
            now - then for now, then in zip(_counts(self._jvm), before, strict=True)
        )
        self._recording.stop()
        with tempfile.TemporaryDirectory(prefix="streamsql-jfr-") as folder:
            file = self._jvm.java.nio.file.Path.of(f"{folder}/samples.jfr", _texts(self._spark))
            self._recording.dump(file)
            self._recording.close()
            events = self._jvm.jdk.jfr.consumer.RecordingFile.readAllEvents(file)
            told.samples = _by_kind(e for e in events if e.getStartTime().isAfter(begun))


@dataclass
class Told:
    """Milliseconds of processor time by kind, and what the process counted."""

    samples: Counter[str] = field(default_factory=Counter)
    compilers: int = 0
    collector: int = 0
    classes: int = 0

    def lines(self) -> list[tuple[str, int]]:
        sampled = [(kind, count * PERIOD_MS) for kind, count in self.samples.most_common()]
        own = [("Java's compilers", self.compilers), ("Java's collector", self.collector)]
        return sorted([*sampled, *own], key=lambda line: -line[1])


def ask_for_whole_stacks() -> None:
    """To be called before Java starts: 64 frames do not reach what called a deep rule."""
    os.environ["JDK_JAVA_OPTIONS"] = "-XX:FlightRecorderOptions=stackdepth=512"


def _counts(jvm: Any) -> tuple[int, int, int]:
    """Milliseconds of the compilers and of the collectors, and classes that were generated."""
    beans = jvm.java.lang.management.ManagementFactory
    collectors = beans.getGarbageCollectorMXBeans()
    metrics = jvm.org.apache.spark.metrics.source.CodegenMetrics
    return (
        beans.getCompilationMXBean().getTotalCompilationTime(),
        sum(each.getCollectionTime() for each in collectors),
        metrics.METRIC_COMPILATION_TIME().getCount(),
    )


def _by_kind(events: Iterable[Any]) -> Counter[str]:
    # Whole stacks as one text each: one call of Java a sample, not one a frame.
    found: Counter[str] = Counter()
    for event in events:
        trace = event.getStackTrace()
        found[_kind(str(trace)) if trace is not None else "other"] += 1
    return found


def _kind(stack: str) -> str:
    for kind, marks in KINDS.items():
        if any(mark in stack for mark in marks):
            return kind
    return "other"


def _texts(spark: SparkSession) -> Any:
    gateway: Any = spark.sparkContext._gateway  # noqa: SLF001
    return gateway.new_array(gateway.jvm.java.lang.String, 0)
