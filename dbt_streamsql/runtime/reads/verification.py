"""Verify that a view equals its query over the exact versions of its inputs that it has read."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pyspark.sql import Row, SparkSession

from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.meta import Job, TableVersion
from dbt_streamsql.meta.model.stored_definition import definition_of, plan_of
from dbt_streamsql.plan.algebra import likeness
from dbt_streamsql.plan.algebra.expression import fill
from dbt_streamsql.plan.algebra.relational import CLOCK
from dbt_streamsql.plan.algebra.schema import Column
from dbt_streamsql.plan.compiled import CompiledPlan
from dbt_streamsql.plan.definition.redefinition import METADATA
from dbt_streamsql.plan.moments import AFTER, BEFORE, Moments
from dbt_streamsql.quoting import TableName, quote
from dbt_streamsql.runtime.changelog.changelog_query import columns_of
from dbt_streamsql.runtime.core.epoch_state import ONE_MOMENT, Warehouse, readable, registered
from dbt_streamsql.runtime.core.row_expiry import APPROXIMATE, CLOCKED, expired_at
from dbt_streamsql.runtime.reads import key_check, row_diff
from dbt_streamsql.runtime.refresh.full_query import Rewrite
from dbt_streamsql.runtime.refresh.program_runner import clock_row
from dbt_streamsql.runtime.spark import native
from dbt_streamsql.storage.columns import collected
from dbt_streamsql.storage.iceberg.metadata import Metadata
from dbt_streamsql.storage.iceberg.scans import changes
from dbt_streamsql.storage.inputs import inputs, unversioned

_CONSTRAINTS = "spark.sql.constraintPropagation.enabled"


Oracle = Callable[[CompiledPlan, Moments], tuple[tuple[str, ...], str]]
"""What a view that forgets should be, minus what it is: the columns and a SELECT of them."""


def differing(
    warehouse: Warehouse, table: TableName, rewritten: Rewrite, oracle: Oracle
) -> list[Row]:
    """The rows that only the view or only its query has, with a column `_side`.

    The expected rows of a view that has forgotten something follow from its last epoch: the rows
    of the view before it, and its inputs then and now, as `oracle` says.
    Errors: DEFINITION_MISSING, NOT_A_VIEW, STATE_FORGOTTEN, CONSISTENCY_UNAVAILABLE when a version
    that is to be compared has been expired, KEY_UNTRUE.
    """
    store = warehouse.store
    version = store.latest(str(table))
    # For readers, a view that was never published does not exist.
    job = registered(store.jobs() if version is not None else {}, str(table))
    assert version is not None
    held = _held(warehouse, job, version)
    if APPROXIMATE in version.stats:
        forgetful, rows = oracle(plan_of(job), _moments(warehouse, job, version, held))
        shown = likeness.typed(forgetful, {c["name"]: c["type"] for c in job.columns})
    else:
        shown = columns_of(job)
        names = ", ".join(quote(column.name) for column in shown)
        query = f"({_meant(warehouse, job, version, held, rewritten)})"
        if any(column.stored_type != column.type for column in shown):
            query = f"(SELECT {', '.join(map(_as_stored, shown))} FROM {query})"
        rows = row_diff.signed(names, query, inputs.version(table, version.snapshot))
    # What native code has computed is compared with what Spark itself computes.
    with warehouse.sessions.use() as spark, native.without(spark):
        unversioned.looked_at(spark, plan_of(job).unversioned, 0)
        inputs.look_again(spark, held)
        _check_keys(warehouse, spark, job, version, held)
        # Spark cannot carry constraints of correlated sub-queries through a UNION.
        spark.conf.set(_CONSTRAINTS, False)
        try:
            found = collected(spark.sql(row_diff.differing(shown, rows)))
        finally:
            spark.conf.unset(_CONSTRAINTS)
    floats = {c["name"] for c in job.columns if c["type"] in {"float", "double"}}
    return row_diff.beyond_rounding(found, floats) if floats else found


def _check_keys(
    warehouse: Warehouse,
    spark: SparkSession,
    job: Job,
    version: TableVersion,
    held: dict[TableName, Metadata],
) -> None:
    """Check the declared keys of the tables that a view reads, as it has read them."""
    declared = definition_of(job).keys
    if ONE_MOMENT not in version.stats:
        return
    read = _read(warehouse, version, held)

    def rows(table: str) -> str:
        name = TableName.parse(table)
        return inputs.version(name, read[table], held[name])

    known = [key for key in declared if {key.table, key.references} - {""} <= read.keys()]
    key_check.check(spark, known, rows, job.unique_id or job.table)


def _as_stored(column: Column) -> str:
    """A column of a query in the type that its table gives it."""
    name = quote(column.name)
    same = column.stored_type == column.type
    return name if same else f"CAST({name} AS {column.stored_type}) AS {name}"


def _held(warehouse: Warehouse, job: Job, version: TableVersion) -> dict[TableName, Metadata]:
    """The view and what it reads, as they exist now. Pinned versions go only when a table is
    written by hand, dropped or restored, or when files of it are removed."""
    gone, found = [], {}
    read = {source: version.inputs.get(source) for source in job.sources}
    for table, at in {job.table: version.snapshot, **read}.items():
        name = TableName.parse(table)
        meta = inputs.find(warehouse.sessions.main, name)
        if meta is not None:
            found[name] = meta
        if at is not None and (meta is None or at not in meta.snapshots):
            gone.append(f"snapshot {at} of {name}")
    if gone:
        raise StreamSqlError(
            "CONSISTENCY_UNAVAILABLE",
            f"the data of {job.table} at barrier {version.barrier} is no longer available",
            given=f"expired or dropped: {', '.join(gone)}",
            allowed="a view and its sources at the versions of its last barrier",
            hint="the next run rebuilds the view (`dbt run`, or Engine.advance()); verify it "
            "after that",
        )
    return found


def _moments(
    warehouse: Warehouse, job: Job, version: TableVersion, held: Mapping[TableName, Metadata]
) -> Moments:
    """The last epoch of a view: its versions and what they record of its inputs."""
    plan = plan_of(job)
    previous = warehouse.store.latest_all(version.barrier - 1).get(job.table)
    sources = {source: held.get(TableName.parse(source)) for source in job.sources}
    view = held.get(TableName.parse(job.table))
    if plan.fingerprint != version.stats.get("plan"):
        raise _untold(job, "its definition differs from the one that made its rows")
    if CLOCKED not in version.stats:
        raise _untold(job, "the time of its last barrier was not recorded")
    if version.stats.get("definition", METADATA) != METADATA:
        raise _untold(job, "its last barrier reused rows of a different definition")
    if previous is None or view is None or previous.snapshot not in view.snapshots:
        raise _untold(job, "its version before the last barrier is gone")
    for source, meta in sources.items():
        known = previous.inputs.get(source), version.inputs[source]
        if meta is None or inputs.classify(meta, *known).kind == "lost":
            raise _untold(
                job, f"the version of {source} that it read before the last barrier is gone"
            )
    versions = {BEFORE: previous, AFTER: version}

    def rows(moment: str, place: int) -> str:
        source, _ = plan.reads[place]
        meta, name = sources[source], TableName.parse(source)
        assert meta is not None
        at, old = versions[moment].inputs[source], previous.inputs[source]
        expired = expired_at(version, place, source)
        if expired and moment == AFTER:
            # Rows that arrived in the epoch are seen in it, however old they are.
            expired = min(expired, meta.snapshots[old].sequence if old is not None else 0)
        if at is None or not expired:
            return inputs.as_now(warehouse.sessions.main, name, meta, at)
        return changes.drop_lineage_columns(
            changes.written_after(changes.with_lineage(name, at), expired)
        )

    return Moments(
        rows,
        lambda moment: str(clock_row(versions[moment].inputs[CLOCK])),
        lambda moment: inputs.version(TableName.parse(job.table), versions[moment].snapshot),
        version.stats[CLOCKED],
    )


def _untold(job: Job, why: str) -> StreamSqlError:
    return StreamSqlError(
        "STATE_FORGOTTEN",
        f"{job.table} has forgotten state, so its expected rows are not known: {why}",
        given="a comparison with the expected result of its last barrier",
        hint="verify it after its next barrier, or rebuild it from its query with `dbt run "
        "--full-refresh`",
    )


def _meant(
    warehouse: Warehouse,
    job: Job,
    version: TableVersion,
    held: dict[TableName, Metadata],
    rewritten: Rewrite,
) -> str:
    """The query of a view over what it has read: where the query leaves a choice, the one made.

    With stored parts it is read from the tables below them, so that a wrong part, or a wrong way
    to read it, is seen.
    """
    plan, jobs, spark = plan_of(job), warehouse.store.jobs(), warehouse.sessions.main
    if plan.mode not in ("incremental", "full"):
        raise StreamSqlError(
            "NOT_A_VIEW",
            f"{job.table} reads records from a stream, so there is nothing to compare it with",
            allowed="materialized views",
        )

    read = _read(warehouse, version, held) if plan.parts else version.inputs

    def consumed(source: TableName) -> str | None:
        if str(source) not in read:
            return None
        meta = held[source]
        text = inputs.as_now(spark, source, meta, read[str(source)])
        return readable(jobs.get(str(source)), text, meta)

    if not plan.canonical:
        return rewritten(job.sql, consumed)
    clock = version.inputs.get(CLOCK, 0)

    def relation(table: str) -> str:
        return str(clock_row(clock) if table == CLOCK else consumed(TableName.parse(table)))

    return fill(plan.whole_sql, relation) if plan.parts else plan.filled(relation)


def _read(
    warehouse: Warehouse, version: TableVersion, held: dict[TableName, Metadata]
) -> dict[str, int | None]:
    """The versions that a view has read, those of its state tables in the place of these."""
    jobs, latest = warehouse.store.jobs(), warehouse.store.latest_all(version.barrier)
    found: dict[str, int | None] = {}
    for table, snapshot in version.inputs.items():
        if table in jobs and definition_of(jobs[table]).part:
            held |= _held(warehouse, jobs[table], latest[table])
            found |= _read(warehouse, latest[table], held)
        else:
            found[table] = snapshot
    return found
