"""Plain tables: staged, checked, then published by one change; and cleanup after dead
processes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from pyspark.sql import SparkSession

from dbt_streamsql.errors import Place, StreamSqlError
from dbt_streamsql.runtime.core.epoch_state import Warehouse, log
from dbt_streamsql.runtime.core.failpoints import failpoint
from dbt_streamsql.runtime.publish.constraints import KINDS, Constraint, verify
from dbt_streamsql.runtime.spark import native
from dbt_streamsql.storage.iceberg import staging
from dbt_streamsql.storage.staged_table import (
    StagedTable,
    StagingPurpose,
    TableSpec,
    already_there,
    comment_columns,
)
from dbt_streamsql.storage.tables import registry


@dataclass(frozen=True)
class Build:
    """One table to build from a query; `clear` makes room for it after all checks."""

    spec: TableSpec
    query: str
    purpose: StagingPurpose = StagingPurpose.CREATE_OR_REPLACE_TABLE_AS
    constraints: Sequence[Constraint] = ()
    clear: Callable[[], None] = lambda: None


def run(warehouse: Warehouse, spark: SparkSession, build: Build) -> bool:
    """Build a table in the session `spark`, all or nothing; False when it existed already.

    Errors: ATOMIC_UNSUPPORTED, CONSTRAINT_VIOLATED, TABLE_EXISTS, and Spark's own for the query.
    """
    _check(build)
    replaces = build.purpose is StagingPurpose.CREATE_OR_REPLACE_TABLE_AS
    root = warehouse.location_of(build.spec.name.catalog)
    staged = registry.apply_staging(spark, build.spec, build.purpose, root)
    if not replaces and staged.exists(spark):
        return _refuse(build)
    ledger = warehouse.store.staged
    with failpoint("staged.record"):
        ledger.record(staged.token, str(build.spec.name), registry.to_json(staged))
    try:
        with failpoint("staged.begin"):
            begin = partial(staged.begin, spark, build.query)
            nested = partial(_reads_nested, spark, build.query)
            native.or_without(spark, begin, str(build.spec.name), nested=nested)
        verify(spark, staged.staged, build.constraints, str(build.spec.name))
        ledger.confirm(staged.token)
        build.clear()
        with failpoint("staged.commit"):
            staged.commit(spark)
    except BaseException as error:
        _undo(warehouse, spark, staged)
        if isinstance(error, StreamSqlError) and error.code == "TABLE_EXISTS":
            return _refuse(build)
        raise
    with failpoint("staged.forget"):
        ledger.forget(staged.token)
    return True


def _reads_nested(spark: SparkSession, query: str) -> bool:
    return native.reads_nested(spark.sql(query))


def run_plainly(spark: SparkSession, build: Build) -> bool:
    """Build without staging, as in FLIP-305: create the table, then insert; a failure leaves it.

    False when it existed already. Error: TABLE_EXISTS; constraints are checked last.
    """
    _check(build)
    spec = build.spec
    if staging.exists(spark, spec.name):
        if build.purpose is not StagingPurpose.CREATE_OR_REPLACE_TABLE_AS:
            return _refuse(build)
        build.clear()
        staging.drop_table(spark, spec.name)
    empty = f"SELECT * FROM ({build.query}\n) WHERE false"
    spark.sql(spec.create_as("CREATE TABLE", spec.name, empty, spec.location, {}))
    comment_columns(spark, spec.name, spec.column_comments)
    spark.sql(f"INSERT INTO {spec.name.sql} {build.query}")
    verify(spark, spec.name.sql, build.constraints, str(spec.name))
    return True


def sweep(warehouse: Warehouse) -> int:
    """Abort what dead processes left staged; returns the number of tables."""
    spark, ledger = warehouse.sessions.main, warehouse.store.staged
    removed = 0
    with ledger.orphans() as records:
        for record in records:
            log.warning(
                "the process that staged %s has died: removing the staged table", record.table
            )
            removed += _undo(warehouse, spark, registry.from_json(record.body))
    return removed


def _check(build: Build) -> None:
    for constraint in build.constraints:
        if constraint.kind not in KINDS:
            raise StreamSqlError(
                "CONFIG_INVALID",
                "unknown constraint",
                given=constraint.kind,
                allowed=", ".join(KINDS),
                place=Place(str(build.spec.name)),
            )


def _refuse(build: Build) -> bool:
    if build.purpose is StagingPurpose.CREATE_TABLE_AS_IF_NOT_EXISTS:
        return False
    raise already_there(build.spec.name)


def _undo(warehouse: Warehouse, spark: SparkSession, staged: StagedTable) -> bool:
    """Remove what was staged; if that fails, its record stays for a later sweep.

    The error that led here must not be hidden by another one.
    """
    try:
        with failpoint("staged.abort"):
            staged.abort(spark)
        with failpoint("staged.forget"):
            warehouse.store.staged.forget(staged.token)
    except Exception:  # noqa: BLE001 - see above
        log.warning(
            "%s: the staged table could not be removed; a later run removes it",
            staged.spec.name,
            exc_info=True,
        )
        return False
    return True
