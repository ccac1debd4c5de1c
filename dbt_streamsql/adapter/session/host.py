"""What all of dbt's threads share in one process: the Spark session and the engine.

dbt opens a connection per node; opening a Spark session costs a tenth of a second and its first
query another half second, so used sessions are kept and handed out again, unless a statement
changed their settings or left a temporary view behind.
"""

from __future__ import annotations

import atexit
import gc
import json
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from dbt.adapters.events.logging import AdapterLogger

from dbt_streamsql.meta.model.addresses import file_of
from dbt_streamsql.runtime.spark import connect
from dbt_streamsql.runtime.spark.session import add_catalog, new_session, open_session
from dbt_streamsql.runtime.spark.settings import SessionSettings
from dbt_streamsql.storage.java import is_connect
from dbt_streamsql.warm import discover

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from dbt_streamsql.engine import Engine

logger = AdapterLogger("StreamSQL")

# At exit, Python searches all objects for garbage: the modules of dbt, pandas and SQLAlchemy make
# this take a second, a fifth of a short command. It frees nothing that is needed.
atexit.register(gc.freeze)


SLOW_SECONDS = 10.0
"""A slower start of Spark is reported: nothing else shows that it is in progress."""


@contextmanager
def _report_slow_start(method: str) -> Iterator[None]:
    """Log when Spark is still starting after a while, and when it has started."""
    began, told = time.monotonic(), threading.Event()

    def tell() -> None:
        told.set()
        logger.info(f"Spark ({method}) has not started after {SLOW_SECONDS:g} s; waiting for it")

    waiting = threading.Timer(SLOW_SECONDS, tell)
    waiting.daemon = True
    waiting.start()
    try:
        yield
    finally:
        waiting.cancel()
    if told.is_set():
        hint = "; `streamsql spark start` keeps a warm one running" if method == "embedded" else ""
        logger.info(f"Spark started after {time.monotonic() - began:.0f} s{hint}")


class RunGate:
    """Many threads may read what the epoch has staged, or one may publish it.

    Publishing renames staged tables: no statement that names one may be running.
    """

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._inside: dict[int, int] = {}
        self._closed = False

    def enter(self) -> None:
        """Enter and stay until `leave`; a thread that is inside may enter again."""
        me = threading.get_ident()
        with self._condition:
            self._condition.wait_for(lambda: not self._closed or me in self._inside)
            self._inside[me] = self._inside.get(me, 0) + 1

    def leave(self, thread: int, times: int = 1) -> None:
        with self._condition:
            left = self._inside.pop(thread, 0) - times
            if left > 0:
                self._inside[thread] = left
            self._condition.notify_all()

    @contextmanager
    def shared(self) -> Iterator[None]:
        self.enter()
        try:
            yield
        finally:
            self.leave(threading.get_ident())

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Wait until no other thread is inside, and keep all others out."""
        with self._condition:
            mine = self._inside.pop(threading.get_ident(), 0)
            self._condition.notify_all()
            self._condition.wait_for(lambda: not self._closed)
            self._closed = True
            self._condition.wait_for(lambda: not self._inside)
        try:
            yield
        finally:
            with self._condition:
                self._closed = False
                if mine:
                    self._inside[threading.get_ident()] = mine
                self._condition.notify_all()


class SparkHost:
    """One Spark session and one engine for one profile, each opened on first use."""

    def __init__(
        self,
        settings: SessionSettings,
        meta: str,
        *,
        server: bool = True,
        options: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        """`server`: a warm engine may stand in for an embedded session. `options`: the fields of
        `EngineOptions`."""
        self._options = options
        self.settings = settings
        self.meta = meta
        self.meta_token = options.get("meta_token", "")
        self._server = server
        self.gate = RunGate()
        self._lock = threading.RLock()
        self._spark: SparkSession | None = None
        self._engine: Engine | None = None
        self._idle: list[SparkSession] = []
        self._catalogs: dict[str, SessionSettings] = {}

    def add_catalog(self, settings: SessionSettings) -> None:
        """Let every session reach one more catalog, besides the profile's."""
        with self._lock:
            if self._catalogs.get(settings.catalog) == settings:
                return
            self._catalogs[settings.catalog] = settings
            if self._spark is not None:
                add_catalog(self._spark, settings)
                self._idle.clear()
                self._engine = None

    @property
    def spark(self) -> SparkSession:
        with self._lock:
            if self._spark is None or self._gone(self._spark):
                self._idle.clear()
                self._engine = None
                with _report_slow_start(self.settings.method):
                    served = discover.open_warm(self.settings) if self._server else None
                    self._spark = served or open_session(self.settings)
                for catalog in self._catalogs.values():
                    add_catalog(self._spark, catalog)
            return self._spark

    @property
    def engine(self) -> Engine:
        with self._lock:
            spark = self.spark
            if self._engine is None:
                from dbt_streamsql.engine import Engine

                file = file_of(self.meta)
                if file is not None:
                    # Over Spark Connect nothing else creates the folder.
                    file.parent.mkdir(parents=True, exist_ok=True)
                self._engine = Engine.open(
                    self.settings.warehouse or None,
                    spark=spark,
                    catalog=self.settings.catalog,
                    meta=self.meta,
                    **self._options,
                )
            return self._engine

    @property
    def open_epoch(self) -> Engine | None:
        """The engine if this run has an epoch open, else None. Opens nothing."""
        with self._lock:
            engine = self._engine
        return engine if engine is not None and engine.epochs.is_open else None

    def acquire(self) -> SparkSession:
        """A session for one connection."""
        with self._lock:
            spark = self.spark
            if self._idle:
                return self._idle.pop()
        return new_session(spark)

    def release(self, session: SparkSession) -> None:
        """Take back a session that is unchanged since it was handed out."""
        with self._lock:
            if self._spark is not None and not self._gone(session):
                self._idle.append(session)

    def cancel_all(self) -> None:
        """Stop every running job of this process, the engine's too."""
        with self._lock:
            spark = self._spark
        if spark is None or self._gone(spark):
            return
        if is_connect(spark):
            connect.interrupt_all()
        else:
            spark.sparkContext.cancelAllJobs()

    @staticmethod
    def _gone(spark: SparkSession) -> bool:
        # Other code in this process (a test, a notebook) may have stopped Spark.
        return not is_connect(spark) and spark.sparkContext._jsc is None  # noqa: SLF001 - no public getter


_hosts: dict[tuple[object, ...], SparkHost] = {}
_hosts_lock = threading.Lock()


def host_of(
    settings: SessionSettings,
    meta: str,
    *,
    server: bool = True,
    options: Mapping[str, Any] = MappingProxyType({}),
) -> SparkHost:
    """The process's host for these settings; equal settings give the same host."""
    key = (
        server,
        settings.method,
        settings.host,
        settings.port,
        settings.token,
        settings.user,
        settings.master,
        settings.catalog,
        settings.warehouse,
        tuple(sorted(settings.catalog_properties.items())),
        tuple(sorted(settings.spark_properties.items())),
        settings.connectors,
        settings.native,
        settings.iceberg,
        meta,
        json.dumps(dict(options), sort_keys=True),
    )
    with _hosts_lock:
        if key not in _hosts:
            _hosts[key] = SparkHost(settings, meta, server=server, options=options)
        return _hosts[key]


def host_of_profile(credentials: Any, root: Path) -> SparkHost:
    """The host for `StreamSqlCredentials`, the target of a project in the folder `root`."""
    return host_of(
        credentials.settings(root),
        credentials.meta_url(root),
        server=credentials.server,
        options=credentials.engine_options,
    )


def project_root(config: object) -> Path:
    """The dbt project's folder. `dbt debug` and `dbt init` have no project config, only flags."""
    root = getattr(config, "project_root", None)
    if root is None:
        from dbt.flags import get_flags

        root = getattr(get_flags(), "PROJECT_DIR", None)
    return Path(root or ".").absolute()
