"""Open a Spark session: embedded in this process, on a cluster, or over Spark Connect.

The embedded one needs no configuration: its Iceberg catalog is a SQLite file in the warehouse
folder (write-ahead log, so that several processes can share it). One process has one Spark
context; a second warehouse in the same process gets a session of its own on it.
"""

from __future__ import annotations

import logging
import os
import shlex
import sqlite3
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tenacity import Retrying, stop_after_attempt, wait_incrementing

from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.quoting import quote
from dbt_streamsql.runtime.spark import jars, machine, native, versions
from dbt_streamsql.runtime.spark.java import find_java, launch_home
from dbt_streamsql.runtime.spark.pinned_jars import NOT_OVER_SQLITE
from dbt_streamsql.runtime.spark.settings import (
    DEFAULT_CATALOG,
    SessionSettings,
    catalog_file,
    catalog_settings,
    located,
    not_over_sqlite,
)
from dbt_streamsql.storage.conf import to_carry
from dbt_streamsql.storage.iceberg import caching_io
from dbt_streamsql.storage.java import is_connect, java_class
from dbt_streamsql.storage.locations import is_uri

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOCAL_FILES = "com.globalmentor.apache.hadoop.fs.BareLocalFileSystem"
_ICEBERG_EXTENSIONS = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
_S3A = {
    "s3.endpoint": "fs.s3a.endpoint",
    "client.region": "fs.s3a.endpoint.region",
    "s3.path-style-access": "fs.s3a.path.style.access",
    "s3.access-key-id": "fs.s3a.access.key",
    "s3.secret-access-key": "fs.s3a.secret.key",
    "s3.session-token": "fs.s3a.session.token",
}
"""What Hadoop calls the properties of Iceberg's S3 clients."""
_DELTA_EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"
_DELTA_CATALOG = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
_APPENDED = {
    "spark.sql.extensions": ",",
    "spark.driver.extraClassPath": os.pathsep,
    "spark.driver.extraJavaOptions": " ",
    "spark.jars": ",",
}
"""Settings where a user's value is added to ours instead of replacing it."""
_ARENAS = "MALLOC_ARENA_MAX"
"""In how many parts the C library keeps memory. By default every thread of Java that decodes or
compresses files may get one of its own, and none of them is given back."""
_COMPILED = 4000
"""Generated classes that Spark keeps. An epoch over a dozen views needs more than 300; by default
Spark keeps 100, and would recompile all of them in each epoch."""
_COMPILERS = (
    "-XX:+IgnoreUnrecognizedVMOptions "
    "-XX:Tier4InvocationThreshold=50000 -XX:Tier4MinInvocationThreshold=6000 "
    "-XX:Tier4CompileThreshold=150000 -XX:Tier4BackEdgeThreshold=1000000"
)
"""When Java compiles code a second time, for speed: ten times later than usual. Small epochs run
much code a few times, and that compiler took half of their processor time; big tables reach the
limits at once (docs/decisions/0029)."""
_PLAIN_TEXT = {"spark.sql.variable.substitute": "false"}
"""Spark would replace `${env:NAME}` in any text of a statement, even in table comments."""
_BOUND_IN_PLANS = "spark.sql.legacy.parameterSubstitution.constantsOnly"
_opening = threading.Lock()
log = logging.getLogger("dbt_streamsql")


def embedded(warehouse: str, catalog: str = "lake") -> SparkSession:
    """An embedded session over the warehouse folder, with default settings."""
    return open_session(SessionSettings(catalog=catalog, warehouse=warehouse))


def open_session(settings: SessionSettings) -> SparkSession:
    """Open the session, or a new one on the Spark context that this process already has.

    Errors: JAVA_MISSING, JAR_UNAVAILABLE, JAR_CHECKSUM, CONNECTION.
    """
    from pyspark.logger import PySparkLogger

    # PySpark prints every failed query as JSON on stderr, in addition to raising it. The loggers
    # are of its own class: if a library enables one of another class, it fails on the arguments of
    # PySpark, and the error of the query is lost.
    PySparkLogger.getLogger("SQLQueryContextLogger").disabled = True
    PySparkLogger.getLogger("DataFrameQueryContextLogger").disabled = True
    with _opening:
        if settings.method == "connect":
            session = _connect(settings)
        else:
            session = _classic(settings)
            versions.check(session)
            _check_iceberg(session, settings)
            _define_io(session, catalog_settings(settings))
            _prepare_catalog(session, settings)
        _keep_values(session)
        return session


def _check_iceberg(session: SparkSession, settings: SessionSettings) -> None:
    """The Iceberg of a platform is known when Spark is up; that of a profile before."""
    if settings.is_on_sqlite and jars.chosen(settings.iceberg) is None:
        found = str(java_class(session, "org.apache.iceberg.IcebergBuild").version())
        if found in NOT_OVER_SQLITE:
            raise StreamSqlError("CONFIG_INVALID", not_over_sqlite(found))


def _keep_values(session: SparkSession) -> None:
    """Let the values of `sql(text, args=…)` arrive.

    Spark 4.1 hands them to its parser. Parsers of extensions that do not know this lose them:
    those of Iceberg 1.11 and of Delta 4.4 (github.com/delta-io/delta/issues/7640). Then values are
    bound in the plan, as Spark 4.0 does.
    """
    from pyspark.errors import AnalysisException

    try:
        _ = session.sql("SELECT :value AS value", args={"value": 1}).schema
    except AnalysisException as error:
        # What else is wrong, the first statement that it concerns says better.
        if error.getCondition() == "UNBOUND_SQL_PARAMETER":
            session.conf.set(_BOUND_IN_PLANS, "true")


def new_session(spark: SparkSession) -> SparkSession:
    """A session with the same catalogs and settings, but its own temporary views and conf.

    A classic `newSession()` knows only what Spark was started with, so what was set on `spark`
    later is carried over; properties of single jobs are not.
    """
    if is_connect(spark):
        from dbt_streamsql.runtime.spark import connect

        return connect.beside(spark)
    child = spark.newSession()
    for key, value in to_carry(spark, child).items():
        child.conf.set(key, value)
    return child


def add_catalog(spark: SparkSession, settings: SessionSettings) -> None:
    """Let the session, and those made from it, reach one more catalog."""
    if is_connect(spark):
        settings = replace(settings, method="connect", host="server")
    wanted = catalog_settings(settings)
    _define_io(spark, wanted)
    for key, value in wanted.items():
        if key != DEFAULT_CATALOG:
            spark.conf.set(key, value)
    if settings.warehouse and not is_uri(settings.warehouse):
        _make_folder(Path(located(settings.warehouse)))
        _prepare_catalog(spark, settings)


def set_pool(spark: SparkSession, name: str) -> None:
    """Put this thread's jobs into a fair-scheduler pool of their own (classic sessions only)."""
    if not is_connect(spark):
        spark.sparkContext.setLocalProperty("spark.scheduler.pool", name)


def _define_io(session: SparkSession, wanted: Mapping[str, str]) -> None:
    if caching_io.CLASS in wanted.values():
        caching_io.define(session)


def start_settings(settings: SessionSettings) -> dict[str, str]:
    """All settings that a new Spark context is started with."""
    cores = machine.cores()
    files = [str(file) for file in jars.ensure(settings.jars)]
    log4j = (Path(__file__).parent / "log4j2.properties").as_uri()
    ours = {
        "spark.master": settings.master or "local[*]",
        "spark.app.name": "dbt-streamsql",
        "spark.driver.extraClassPath": os.pathsep.join(files),
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={log4j} {_COMPILERS}",
        "spark.driver.memory": f"{machine.driver_memory() // (1 << 20)}m",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.scheduler.mode": "FAIR",
        "spark.sql.extensions": _ICEBERG_EXTENSIONS,
        "spark.sql.shuffle.partitions": str(cores),
        "spark.sql.codegen.cache.maxEntries": str(_COMPILED),
        "spark.sql.adaptive.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.catalogImplementation": "in-memory",
        # Other writers add and remove files of tables while this process is open.
        "spark.sql.filesourceTableRelationCacheSize": "0",
        **_PLAIN_TEXT,
        **catalog_settings(settings),
    }
    if settings.method == "embedded":
        ours["spark.driver.host"] = ours["spark.driver.bindAddress"] = "127.0.0.1"
        ours["spark.hadoop.fs.file.impl"] = _LOCAL_FILES
    else:
        ours["spark.jars"] = ",".join(files)  # the executors need them too
    ours |= _s3a(settings)
    if settings.native:
        ours |= native.settings(machine.driver_memory())
    if "delta" in settings.connectors:
        ours["spark.sql.extensions"] += f",{_DELTA_EXTENSION}"
        ours["spark.sql.catalog.spark_catalog"] = _DELTA_CATALOG
    if settings.warehouse and not is_uri(settings.warehouse):
        ours["spark.sql.warehouse.dir"] = str(Path(located(settings.warehouse)) / "spark")
    for key, value in settings.spark_properties.items():
        separator = _APPENDED.get(key)
        ours[key] = f"{ours[key]}{separator}{value}" if separator and key in ours else value
    return ours


def _s3a(settings: SessionSettings) -> dict[str, str]:
    """Hadoop's clients reach the store that Iceberg's reach."""
    own = settings.catalog_properties
    if not {"s3", "glue"} & set(settings.connectors):
        return {}
    return {f"spark.hadoop.{to}": own[key] for key, to in _S3A.items() if key in own}


def _classic(settings: SessionSettings) -> SparkSession:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    if settings.warehouse and not is_uri(settings.warehouse):
        _make_folder(Path(located(settings.warehouse)))
    if SparkContext._active_spark_context is not None:  # noqa: SLF001 - no public getter
        return _join(SparkSession.builder.getOrCreate(), settings)
    java = find_java()
    wanted = start_settings(settings)
    if settings.native:
        os.environ.setdefault(*native.QUIET)
    with _started_by(wanted, str(launch_home(java))):
        try:
            started: SparkSession = _builder(wanted).getOrCreate()
        except Exception as error:
            raise StreamSqlError(
                "CONNECTION",
                "Spark did not start",
                given=f"{error}; Java {java}",
                hint="`dbt debug` checks each part; the cause is above, on stderr",
            ) from error
        return started


def _builder(wanted: Mapping[str, str]) -> Any:
    """A builder that starts a Spark context with these settings.

    Java outlives the context that it was started for, and keeps its settings.
    """
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    gateway: Any = SparkContext._gateway  # noqa: SLF001 - no public getter
    if gateway is None:
        return SparkSession.builder
    system = gateway.jvm.java.lang.System
    for key in [key for key in system.getProperties() if key.startswith("spark.sql.")]:
        system.clearProperty(key)
    return SparkSession.builder.config(map=dict(wanted))


def _prepare_catalog(session: SparkSession, settings: SessionSettings) -> None:
    """Let one session create the tables of a new SQLite catalog.

    Iceberg checks whether they exist and then creates them, which fails when several sessions, or
    several processes, do so at the same time.
    """
    file = catalog_file(settings)
    if file is None:
        return
    try:
        for attempt in Retrying(
            stop=stop_after_attempt(5), wait=wait_incrementing(0.2, 0.2), reraise=True
        ):
            with attempt:
                if not _catalog_is_made(file):
                    listed = f"SHOW NAMESPACES IN {quote(settings.catalog)}"
                    new_session(session).sql(listed).collect()
    except Exception as error:
        raise StreamSqlError(
            "CONNECTION",
            "the catalog cannot be created",
            given=f"{file}: {str(error).splitlines()[0]}",
            hint="check that you can write to the `warehouse` folder",
        ) from error


def _catalog_is_made(file: Path) -> bool:
    if not file.is_file():
        return False
    try:
        with closing(sqlite3.connect(file, timeout=20)) as database:
            columns = {row[1] for row in database.execute("PRAGMA table_info(iceberg_tables)")}
            names = database.execute("PRAGMA table_info(iceberg_namespace_properties)").fetchall()
    except sqlite3.Error:
        return False
    return "iceberg_type" in columns and bool(names)


def _join(running: SparkSession, settings: SessionSettings) -> SparkSession:
    """A session for `settings` on a context that other code started."""
    if _ICEBERG_EXTENSIONS not in (running.conf.get("spark.sql.extensions", "") or ""):
        raise StreamSqlError(
            "CONNECTION",
            "this process already runs a Spark session that was started without Iceberg",
            hint="let this library start Spark, or start yours with the Iceberg runtime and "
            f"spark.sql.extensions={_ICEBERG_EXTENSIONS}",
        )
    from pyspark.errors import PySparkException

    session = running.newSession()
    wanted = {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(machine.cores()),
    }
    wanted |= catalog_settings(settings) | _PLAIN_TEXT
    wanted |= {k: v for k, v in settings.spark_properties.items() if k.startswith("spark.sql.")}
    for key, value in wanted.items():
        try:
            session.conf.set(key, value)
        except PySparkException as error:
            # A setting for new contexts only; none of ours is one.
            if key not in settings.spark_properties:
                raise
            log.warning("%s cannot be set on a running Spark: %s", key, error.getCondition())
    return session


def _connect(settings: SessionSettings) -> SparkSession:
    from dbt_streamsql.runtime.spark import connect

    wanted = {"spark.sql.session.timeZone": "UTC", **_PLAIN_TEXT}
    if settings.catalog_properties or settings.warehouse:
        wanted |= catalog_settings(settings)
    here = settings.host in connect.LOOPBACK and not is_uri(settings.warehouse)
    if settings.warehouse and here:
        _make_folder(Path(located(settings.warehouse)))
    session = connect.open_remote(settings, wanted | dict(settings.spark_properties))
    if settings.warehouse and here:
        _prepare_catalog(session, settings)
    return session


@contextmanager
def _started_by(properties: Mapping[str, str], java_home: str) -> Iterator[None]:
    """Environment in which PySpark starts the JVM with these properties, restored afterwards.

    They travel in a file that only the user can read, not on the command line: there a catalog's
    password would be visible to everyone in the process list.
    """
    descriptor, name = tempfile.mkstemp(prefix="streamsql-", suffix=".conf")
    names = ("JAVA_HOME", "PYSPARK_SUBMIT_ARGS", _ARENAS)
    before = {key: os.environ.get(key) for key in names}
    try:
        with os.fdopen(descriptor, "w", encoding="latin-1") as out:
            for key, value in properties.items():
                out.write(f"{_escaped(key)}={_escaped(value)}\n")
        arguments = before["PYSPARK_SUBMIT_ARGS"] or "pyspark-shell"
        os.environ["PYSPARK_SUBMIT_ARGS"] = f"--properties-file {shlex.quote(name)} {arguments}"
        os.environ["JAVA_HOME"] = java_home
        os.environ.setdefault(_ARENAS, "2")
        yield
    finally:
        Path(name).unlink(missing_ok=True)
        for key, old in before.items():
            if old is None:
                os.environ.pop(key, None)
            else:
                os.environ[key] = old


def _escaped(text: str) -> str:
    """A key or value in the syntax of Java's property files."""
    special = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
    out = []
    for position, char in enumerate(text):
        if char in special:
            out.append(special[char])
        elif char in "=:#! " and (char != " " or position == 0):
            out.append("\\" + char)
        elif char.isascii():
            out.append(char)
        else:
            units = char.encode("utf-16-be")
            out += [f"\\u{units[i : i + 2].hex()}" for i in range(0, len(units), 2)]
    return "".join(out)


def _make_folder(folder: Path) -> None:
    """Create the folder of the warehouse; a new one gets a `.gitignore` that excludes it."""
    try:
        if not folder.is_dir():
            folder.mkdir(parents=True, exist_ok=True)
            (folder / ".gitignore").write_text("*\n", encoding="utf-8")
    except OSError as error:
        raise StreamSqlError(
            "CONNECTION",
            "the warehouse folder cannot be created",
            given=f"{folder}: {error.strerror}",
            hint="set `warehouse` to a folder that you can write to",
        ) from error
