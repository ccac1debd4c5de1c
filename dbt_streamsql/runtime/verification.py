"""Whether a view is its query: over the very versions of its inputs that it has read."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import Row

from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.meta import Job, TableVersion
from dbt_streamsql.plan.relational import CLOCK
from dbt_streamsql.quoting import TableName, quote
from dbt_streamsql.runtime import compare
from dbt_streamsql.runtime.ages import APPROXIMATE
from dbt_streamsql.runtime.context import Warehouse, readable
from dbt_streamsql.runtime.frames import clock_row
from dbt_streamsql.runtime.job import Rewrite, plan_of
from dbt_streamsql.storage import inputs

_CONSTRAINTS = "spark.sql.constraintPropagation.enabled"


def differing(warehouse: Warehouse, table: TableName, rewritten: Rewrite) -> list[Row]:
    """The rows that only the view or only its query has, with a column `_side`.

    Errors: DEFINITION_MISSING, STATE_FORGOTTEN.
    """
    store = warehouse.store
    jobs, version = store.jobs(), store.latest(str(table))
    job = jobs.get(str(table))
    if job is None or version is None:
        raise StreamSqlError("DEFINITION_MISSING", f"{table} is not a materialized view")
    if (since := version.stats.get(APPROXIMATE)) is not None:
        raise StreamSqlError(
            "STATE_FORGOTTEN",
            f"{table} has forgotten state since barrier {since}, as its `state_ttl` says",
            given="a comparison with its query, which forgets nothing",
            hint="`dbt run --full-refresh` of the view makes it equal to its query again",
        )

    def consumed(source: TableName) -> str | None:
        if str(source) not in version.inputs:
            return None
        meta = inputs.load(warehouse.sessions.main, source)
        assert meta is not None
        at = version.inputs[str(source)]
        text = inputs.as_now(warehouse.sessions.main, source, meta, at)
        return readable(jobs.get(str(source)), text, meta)

    names = ", ".join(quote(column["name"]) for column in job.columns)
    query = f"({_meant(job, version, consumed, rewritten)})"
    stored = inputs.version(table, version.snapshot)
    with warehouse.sessions.use() as spark:
        # Spark cannot carry constraints of correlated sub-queries through a UNION.
        spark.conf.set(_CONSTRAINTS, False)
        try:
            rows = spark.sql(compare.differing(names, query, stored)).collect()
        finally:
            spark.conf.unset(_CONSTRAINTS)
    floats = {c["name"] for c in job.columns if c["type"] in {"float", "double"}}
    return compare.beyond_rounding(rows, floats) if floats else rows


def _meant(
    job: Job, version: TableVersion, read: Callable[[TableName], str | None], rewritten: Rewrite
) -> str:
    """The query of a view over what it has read: where it leaves a choice, the one made."""
    plan = plan_of(job)
    if plan.mode not in ("incremental", "full"):
        raise StreamSqlError(
            "NOT_A_VIEW",
            f"{job.table} takes records from a stream: there is nothing else to compare it with",
            allowed="materialized views",
        )
    if not plan.canonical:
        return rewritten(job.sql, read)
    clock = version.inputs.get(CLOCK, 0)
    return plan.filled(
        lambda table: str(clock_row(clock) if table == CLOCK else read(TableName.parse(table)))
    )
