"""A pool of Spark sessions: each job of an epoch has one to itself, for its views and settings."""

from __future__ import annotations

import threading
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from pyspark.sql import SparkSession

from dbt_streamsql.runtime.spark.session import new_session
from dbt_streamsql.runtime.spark.timeout import limited
from dbt_streamsql.storage.conf import own_settings
from dbt_streamsql.storage.iceberg.gateway_work import jobs_of
from dbt_streamsql.storage.iceberg.table_reads import TableReads
from dbt_streamsql.storage.java import is_connect, reopen_catalogs, settings_digest


class SessionPool:
    """Lends sessions and takes them back: a new session's first query is expensive."""

    def __init__(self, spark: SparkSession, query_timeout: float | None = None) -> None:
        """`query_timeout`: seconds that one job may take."""
        self.main = spark
        self._query_timeout = query_timeout
        self._free: list[SparkSession] = []
        self._all = [spark]
        self._lock = threading.Lock()
        self._seen: int | None = None
        self._settings: dict[str, str] | None = None

    def follow_settings(self) -> bool:
        """Apply to jobs what was set on the main session since the last call; whether anything
        was, as on the first call."""
        if not is_connect(self.main):
            seen = settings_digest(self.main)
            if seen == self._seen:
                return False
            self._seen = seen
        settings = own_settings(self.main)
        if settings == self._settings:
            return False
        self._settings = settings
        with self._lock:
            self._all = [session for session in self._all if session not in self._free]
            self._free.clear()
        return True

    @contextmanager
    def use(self) -> Iterator[SparkSession]:
        """A session for one job, by one thread. Error: QUERY_TIMEOUT."""
        with self._lock:
            session = self._free.pop() if self._free else None
        if session is None:
            session = new_session(self.main)
            with self._lock:
                self._all.append(session)
        try:
            with limited(session, self._query_timeout):
                yield session
        finally:
            with self._lock:
                self._free.append(session)

    def job_count(self, spark: SparkSession) -> JobCount:
        """The Spark jobs that this thread starts from now on."""
        return JobCount(spark)

    def reopen_catalogs(self) -> None:
        """Drop the catalogs of all sessions, with their connections; the next use opens new ones.

        Running work continues with the old ones. Over Spark Connect they belong to the server and
        are out of reach.
        """
        with self._lock:
            known = list(self._all)
        for session in known:
            if not is_connect(session):
                reopen_catalogs(session)


@dataclass(frozen=True)
class Usage:
    """Spark jobs, and bytes of input that their stages report (-1, -1: not known); and how often
    rows of each table were read, by a scan of Spark or by this process."""

    jobs: int
    bytes: int
    scans: Mapping[str, int]

    def reads(self, tables: Iterable[str]) -> dict[str, int]:
        """Of those of some tables that were read at all; a scan of `t.changes` reads `t`."""
        own = {t: self.scans.get(t, 0) + self.scans.get(f"{t}.changes", 0) for t in tables}
        return {table: times for table, times in own.items() if times}


class JobCount:
    """Counts the Spark jobs that this thread starts between two points, and what is read."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._context = None if is_connect(spark) else spark.sparkContext
        self._group = f"streamsql-{uuid.uuid4().hex}"
        if self._context is not None:
            self._context.setJobGroup(self._group, "streamsql")
        self._files = TableReads()

    def stop(self) -> Usage:
        """What was counted; nothing over Spark Connect."""
        files = self._files.stop()
        if self._context is None:
            return Usage(-1, -1, {})
        jobs, read, scans = jobs_of(self._spark, self._group)
        self._context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]
        self._context.setLocalProperty("spark.job.description", None)  # type: ignore[arg-type]
        return Usage(jobs, read, files + Counter(scans))
