"""`dbt debug`: tests each part that a run needs, one after the other."""

from __future__ import annotations

import posixpath
import uuid
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from dbt_streamsql.adapter.common.error_messages import cause_of
from dbt_streamsql.adapter.common.secrets import scrub
from dbt_streamsql.adapter.session.host import SparkHost
from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.quoting import quote
from dbt_streamsql.runtime.spark import jars
from dbt_streamsql.runtime.spark.java import find_java
from dbt_streamsql.storage.conf import warehouse_of
from dbt_streamsql.storage.java import is_connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run(host: SparkHost) -> Iterator[str]:
    """Yield one line per part that works; the first that does not is an error with what to do."""
    if host.settings.method != "connect":
        yield f"java: {find_java()}"
        files = jars.ensure(jars.embedded_jars(host.settings.iceberg))
        yield f"jars: {len(files)} in {files[0].parent}"
    spark = host.spark
    here = "the warm engine" if host.settings.method == "embedded" and is_connect(spark) else ""
    where = here or host.settings.host or host.settings.master or "in this process"
    yield f"session: Spark {spark.version}, {host.settings.method}, {where}"
    _write_to_catalog(host)
    yield f"catalog: {host.settings.catalog}, a table was written, read and dropped"
    try:
        engine = host.engine
    except StreamSqlError:
        raise
    except Exception as error:
        raise StreamSqlError(
            "META_UNREACHABLE",
            "the MetaService store cannot be opened",
            given=f"{scrub(host.meta)}: {cause_of(error)}",
            hint="check `meta` in the profile",
        ) from error
    state = "an epoch is open" if engine.epochs.is_open else "ready"
    yield f"meta: {scrub(host.meta)}, {state}"


def _remove_folder(session: SparkSession, catalog: str, schema: str) -> None:
    """Remove the empty folder that a schema leaves, where the catalog keeps tables in one."""
    from py4j.protocol import Py4JError

    from dbt_streamsql.storage.iceberg.files import delete_folder

    root = warehouse_of(session, catalog)
    if root:
        # An object store has no folders, and perhaps only Iceberg can reach it.
        with suppress(OSError, Py4JError):
            delete_folder(session, posixpath.join(root, schema))


def _write_to_catalog(host: SparkHost) -> None:
    session = host.acquire()
    catalog, name = host.settings.catalog, f"__streamsql_debug_{uuid.uuid4().hex[:8]}"
    schema = f"{quote(catalog)}.{quote(name)}"
    try:
        session.sql(f"CREATE NAMESPACE {schema}")
        try:
            session.sql(f"CREATE TABLE {schema}.t USING iceberg AS SELECT 1 AS id")
            rows = session.sql(f"SELECT id FROM {schema}.t").collect()
            session.sql(f"DROP TABLE {schema}.t PURGE")
        finally:
            session.sql(f"DROP NAMESPACE {schema}")
            _remove_folder(session, catalog, name)
        if [row[0] for row in rows] != [1]:
            raise StreamSqlError(
                "CONNECTION",
                "the catalog did not return the row that was written",
                given=str(rows),
            )
    except StreamSqlError:
        raise
    except Exception as error:
        raise StreamSqlError(
            "CONNECTION",
            f"cannot write to the catalog `{host.settings.catalog}`",
            given=cause_of(error),
            hint="check that `warehouse` is writable; check `catalog` and `catalog_properties`",
        ) from error
    finally:
        host.release(session)
