"""OpenLineage: what each job did at each barrier, sent when the barrier is published.

Enabled by the library's own configuration: `OPENLINEAGE_URL`, any `OPENLINEAGE__TRANSPORT__…`,
`OPENLINEAGE_CONFIG`, or an `openlineage.yml` in the working folder or `~/.openlineage`. Sending
events never makes a run fail: errors become warnings.

A run is one job at one barrier. Its id follows from both, so a barrier that is sent twice after a
crash is still one. START carries the time when the job began, COMPLETE when its version became
visible. A failed job is sent at once: START and FAIL, or ABORT when it was interrupted.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

from dbt_streamsql.__version__ import version as adapter_version
from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.meta import (
    NOOP,
    Barrier,
    Job,
    TableVersion,
)
from dbt_streamsql.meta.inspect import delay, history
from dbt_streamsql.meta.inspect.column_lineage import of_job
from dbt_streamsql.meta.model import stream_nodes
from dbt_streamsql.plan.algebra.lineage import Lineage
from dbt_streamsql.plan.algebra.relational import CLOCK
from dbt_streamsql.quoting import TableName
from dbt_streamsql.runtime.core.epoch_state import Warehouse, log
from dbt_streamsql.runtime.publish.column_facet import column_facet
from dbt_streamsql.storage.locations import is_uri

if TYPE_CHECKING:
    from openlineage.client import OpenLineageClient
    from openlineage.client.event_v2 import InputDataset, OutputDataset, Run, RunEvent
    from openlineage.client.event_v2 import Job as JobOfEvent
    from openlineage.client.facet_v2 import DatasetFacet, RunFacet

PRODUCER = f"https://pypi.org/project/dbt-streamsql/{adapter_version}"
INTEGRATION = "STREAMSQL"
_ENVIRONMENT = "OPENLINEAGE_"
_FILE = "openlineage.yml"
_CLOSING = 10.0
"""Seconds that pending events wait for a slow server at the end of a run."""


@dataclass(frozen=True)
class Place:
    """The namespaces of jobs and tables: `store` identifies a warehouse, `location` gives the
    address of a catalog ('' when the catalog decides itself)."""

    store: str
    location: Callable[[str], str]
    spark: str


def published(warehouse: Warehouse, number: int) -> None:
    """Send the events of every job of a committed barrier."""
    with _telling(f"barrier {number}") as client:
        if client is None:
            return
        store = warehouse.store
        found = history.load(store, upto=number)
        barrier = found.at(number)
        versions = found.versions.get(number, {}).values()
        late = delay.delays(found, versions)
        place = _place_of(warehouse)
        for version in versions:
            job = found.jobs.get(version.table)
            if job is not None and barrier is not None:
                delayed, columns = late.get((number, job.table)), of_job(job, found.jobs)
                for event in events(barrier, version, job, place, delayed, columns):
                    client.emit(event)


def failed(warehouse: Warehouse, job: Job, began: float, ended: float, why: BaseException) -> None:
    """Send the events of a job that failed (an `Exception`) or was interrupted, at once."""
    with _telling(job.table) as client:
        if client is None:
            return
        for event in failure(job, _place_of(warehouse), began, ended, why):
            client.emit(event)


def events(
    barrier: Barrier,
    version: TableVersion,
    job: Job,
    place: Place,
    late: delay.Delay | None = None,
    columns: Lineage | None = None,
) -> Iterator[RunEvent]:
    """START and COMPLETE of one job at one barrier; `columns`: where its columns come from."""
    from openlineage.client.event_v2 import RunEvent, RunState
    from openlineage.client.facet_v2 import RunFacet, nominal_time_run

    began = version.started_at or barrier.started_at
    written = version.written_at if version.mode != NOOP else None
    ended = written or barrier.ended_at or began + version.seconds
    about: RunFacet = RunFacet(producer=PRODUCER).with_additional_properties(  # type: ignore[assignment]
        barrier=version.barrier,
        mode=version.mode,
        reason=version.reason,
        rowsInserted=version.rows_inserted,
        rowsDeleted=version.rows_deleted,
        seconds=version.seconds,
        sparkJobs=version.jobs,
        delaySeconds=late.seconds if late else None,
        delaySince=late.since.root if late else None,
    )
    nominal = nominal_time_run.NominalTimeRunFacet(_iso(barrier.started_at), producer=PRODUCER)
    run = _run(place, job, began, {"streamsql_barrier": about, "nominalTime": nominal})
    inputs = [_input(place, source, version.inputs.get(source)) for source in job.sources]
    inputs += _stream(job)
    outputs = [_output(place, job, version, columns)]
    of = _job(job)
    for state, moment in ((RunState.START, began), (RunState.COMPLETE, ended)):
        yield RunEvent(
            eventTime=_iso(moment),
            producer=PRODUCER,
            eventType=state,
            run=run,
            job=of,
            inputs=inputs,
            outputs=outputs,
        )


def failure(
    job: Job, place: Place, began: float, ended: float, why: BaseException
) -> Iterator[RunEvent]:
    """START and FAIL (ABORT if it was interrupted) of a job that has no version."""
    from openlineage.client.event_v2 import OutputDataset, RunEvent, RunState
    from openlineage.client.facet_v2 import error_message_run

    message = str(why) if isinstance(why, StreamSqlError) else f"{type(why).__name__}: {why}"
    error = error_message_run.ErrorMessageRunFacet(message, "PYTHON", producer=PRODUCER)
    end = RunState.FAIL if isinstance(why, Exception) else RunState.ABORT
    for state, moment, facets in (
        (RunState.START, began, {}),
        (end, ended, {"errorMessage": error}),
    ):
        yield RunEvent(
            eventTime=_iso(moment),
            producer=PRODUCER,
            eventType=state,
            run=_run(place, job, began, facets),
            job=_job(job),
            inputs=[*(_input(place, source, None) for source in job.sources), *_stream(job)],
            outputs=[OutputDataset(*_dataset(place, job.table))],
        )


def configured() -> bool:
    """Whether the library's configuration names a place to send events to."""
    if any(key.startswith(_ENVIRONMENT) for key in os.environ):
        return True
    return any((f / _FILE).is_file() for f in (Path.cwd(), Path.home() / ".openlineage"))


@contextmanager
def _telling(what: str) -> Iterator[OpenLineageClient | None]:
    """A client that is closed with the block, or None; no error leaves the block."""
    client = None
    try:
        client = _client() if configured() else None
    except Exception as error:  # noqa: BLE001 - monitoring must not fail a run
        log.warning("OpenLineage cannot be reached as configured: %s", error)
    try:
        yield client
        if client is not None:
            client.close(timeout=_CLOSING)
    except Exception as error:  # noqa: BLE001 - as above
        log.warning("could not send %s to OpenLineage: %s", what, error)


def _client() -> OpenLineageClient | None:
    """None when the configuration names no transport: the library would print every event."""
    try:
        from openlineage.client import OpenLineageClient
    except ImportError:
        log.warning(
            "OpenLineage is configured but not installed: install dbt-streamsql[openlineage]"
        )
        return None
    client = OpenLineageClient()
    named = client.config.transport and client.config.transport.get("type")
    return client if named or os.environ.get("OPENLINEAGE_URL") else None


def _place_of(warehouse: Warehouse) -> Place:
    spark = str(warehouse.sessions.main.version)
    return Place(warehouse.store_id, warehouse.location_of, spark)


def _run(place: Place, job: Job, began: float, facets: Mapping[str, RunFacet]) -> Run:
    from openlineage.client.event_v2 import Run
    from openlineage.client.facet_v2 import processing_engine_run
    from openlineage.client.uuid import generate_static_uuid

    engine = processing_engine_run.ProcessingEngineRunFacet(
        place.spark, "spark", adapter_version, producer=PRODUCER
    )
    at = datetime.fromtimestamp(began, timezone.utc)
    name = str(generate_static_uuid(at, f"{place.store} {job.table}".encode()))
    return Run(name, {**facets, "processing_engine": engine})


def _job(job: Job) -> JobOfEvent:
    from openlineage.client.event_v2 import Job as JobOfEvent
    from openlineage.client.facet_v2 import job_type_job, sql_job

    kind = job_type_job.JobTypeJobFacet(
        "BATCH", INTEGRATION, "MATERIALIZED_VIEW", producer=PRODUCER
    )
    sql = sql_job.SQLJobFacet(job.sql, "spark", producer=PRODUCER)
    namespace = os.environ.get("OPENLINEAGE_NAMESPACE", "default")
    return JobOfEvent(namespace, job.unique_id or job.table, {"jobType": kind, "sql": sql})


def _input(place: Place, table: str, snapshot: int | None) -> InputDataset:
    from openlineage.client.event_v2 import InputDataset
    from openlineage.client.facet_v2 import dataset_version_dataset as versions

    facets: dict[str, DatasetFacet] = {}
    if snapshot is not None and table != CLOCK:
        facets["version"] = versions.DatasetVersionDatasetFacet(str(snapshot), producer=PRODUCER)
    return InputDataset(*_dataset(place, table), facets=facets)


def _stream(job: Job) -> list[InputDataset]:
    """What a streaming table reads; nothing for a view."""
    from openlineage.client.event_v2 import InputDataset

    found = stream_nodes.parts(job)
    return [InputDataset(*found)] if found is not None else []


def _output(
    place: Place, job: Job, version: TableVersion, columns: Lineage | None
) -> OutputDataset:
    from openlineage.client.event_v2 import OutputDataset
    from openlineage.client.facet_v2 import dataset_version_dataset as versions
    from openlineage.client.facet_v2 import (
        lifecycle_state_change_dataset,
        output_statistics_output_dataset,
        schema_dataset,
    )

    fields = [
        schema_dataset.SchemaDatasetFacetFields(column["name"], column["type"])
        for column in job.columns
    ]
    facets: dict[str, DatasetFacet] = {
        "schema": schema_dataset.SchemaDatasetFacet(fields, producer=PRODUCER)
    }
    if columns is not None:
        facets["columnLineage"] = column_facet(
            columns, lambda table: _dataset(place, table), PRODUCER
        )
    if version.snapshot is not None:
        number = str(version.snapshot)
        facets["version"] = versions.DatasetVersionDatasetFacet(number, producer=PRODUCER)
    if version.created:
        facets["lifecycleStateChange"] = (
            lifecycle_state_change_dataset.LifecycleStateChangeDatasetFacet(
                lifecycle_state_change_dataset.LifecycleStateChange.CREATE, producer=PRODUCER
            )
        )
    rows = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
        version.rows_inserted, producer=PRODUCER
    )
    return OutputDataset(*_dataset(place, job.table), {"outputStatistics": rows}, facets=facets)


def _dataset(place: Place, table: str) -> tuple[str, str]:
    """The namespace and the name: the place of the catalog, and schema and table in it."""
    name = TableName.parse(table)
    where = place.location(name.catalog)
    if where and not is_uri(where):
        where = Path(where.removeprefix("file:")).as_uri()
    return where or f"iceberg://{name.catalog}", f"{name.schema}.{name.table}"


def _iso(moment: float) -> str:
    return datetime.fromtimestamp(moment, timezone.utc).isoformat()
