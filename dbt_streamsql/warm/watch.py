"""The use of the warm engine: its sessions and statements, and what dead clients left there."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Any

from dbt_streamsql.storage.java import items, java_class
from dbt_streamsql.warm import process
from dbt_streamsql.warm.record import State

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CLIENT = re.compile(r"\d+-[0-9a-f]{12}")
"""A local client gives its process's identity as its user name."""


def service_of(spark: SparkSession) -> Any:
    """Spark's Connect service in this JVM."""
    name = "org.apache.spark.sql.connect.service.SparkConnectService$"
    # Where Scala keeps an object, whose class lacks static methods for some of it.
    return getattr(java_class(spark, name), "MODULE$")


class Watch:
    """Looks at the Connect service of a Spark in this process."""

    def __init__(self, spark: SparkSession) -> None:
        self._service = service_of(spark)
        self._converters = java_class(spark, "scala.jdk.javaapi.CollectionConverters")
        self._memory = java_class(spark, "java.lang.Runtime").getRuntime()
        self._used = time.time()

    def look(self) -> State:
        """The state now, after closing the sessions of clients that have died.

        A statement of a killed client would keep writing during the next run.
        """
        manager = self._service.sessionManager()
        open_sessions = 0
        for session in self._listed(manager.listActiveSessions()):
            client = session.userId()
            if _CLIENT.fullmatch(client) and not process.runs(client):
                manager.closeSession(session.key(), False)
                continue
            open_sessions += 1
            self._used = max(self._used, session.lastAccessTimeMs() / 1000)
        running = self._service.executionManager().listActiveExecutions()
        statements = running.toOption().get().size() if running.isRight() else 0
        if statements:
            self._used = time.time()
        total, free = self._memory.totalMemory(), self._memory.freeMemory()
        return State(
            sessions=open_sessions,
            statements=statements,
            memory_used=total - free,
            memory_limit=self._memory.maxMemory(),
            idle=max(0.0, time.time() - self._used),
        )

    def _listed(self, found: Any) -> list[Any]:
        """The elements of a Scala sequence."""
        return items(self._converters.asJava(found))
