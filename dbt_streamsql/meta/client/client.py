"""A store that is served by a MetaService. Each call is one request.

The service holds the runner lock, and what this process stages, as long as it receives heartbeats.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.meta.client.heartbeats import Heartbeats
from dbt_streamsql.meta.client.protocol import (
    Edge,
    Grant,
    Greeting,
    StagedOwner,
    Sweep,
)
from dbt_streamsql.meta.client.transport import Transport
from dbt_streamsql.meta.model.records import (
    Barrier,
    ChangeFile,
    Entry,
    Fence,
    Job,
    Leader,
    Lease,
    Pin,
    Published,
    Sink,
    Span,
    TableVersion,
)
from dbt_streamsql.meta.model.transitions import common_barrier
from dbt_streamsql.meta.store.kept import KeptReads, States
from dbt_streamsql.meta.store.leaders import LEADER_SECONDS
from dbt_streamsql.meta.store.leases import LEASE_SECONDS
from dbt_streamsql.meta.store.retention import Forgotten, Outlook, Retention
from dbt_streamsql.meta.store.sql import lock
from dbt_streamsql.meta.store.sql.schema import SCHEMA_VERSION
from dbt_streamsql.meta.store.staged_tables import StagedRecord

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from dbt_streamsql.meta.store.recovery import Ledger


_STAGES = "/staged/heartbeat"


class MetaClient:
    """A served `MetaStore`."""

    def __init__(self, url: str, token: str = "") -> None:
        """META_UNREACHABLE, META_DENIED, or META_VERSION when the service runs another version."""
        self._http = Transport(url, token)
        self._heartbeats = Heartbeats(self._http)
        try:
            self.greeting = self._http.get(Greeting, "/whoami")
            if self.greeting.schema_version != SCHEMA_VERSION:
                raise StreamSqlError(
                    "META_VERSION",
                    "MetaService runs a different version of dbt-streamsql",
                    given=f"store version {self.greeting.schema_version} at {self._http.url}",
                    allowed=f"version {SCHEMA_VERSION}",
                    hint="use the same version of dbt-streamsql for both",
                )
        except BaseException:
            self._http.close()
            raise
        self._held: Fence | None = None
        self._kept = KeptReads(self)
        self.staged = StagedClient(self._http, self._heartbeats)
        self.leases = LeasesClient(self._http)
        self.leaders = LeadersClient(self._http)

    @property
    def id(self) -> str:
        return self.greeting.store

    def states(self) -> States:
        return self._http.get(States, "/states")

    def check_empty(self) -> None:
        raise StreamSqlError(
            "CONFIG_INVALID",
            "a store cannot be rebuilt through a MetaService",
            given=f"meta: {self._http.url}",
            allowed="the address of the store itself: sqlite:///<file> or postgresql+psycopg://…",
            hint="stop `streamsql meta serve`, and run the command on its host with a profile "
            "that does not use the service",
        )

    def rebuild(self, fence: Fence, ledger: Ledger) -> None:  # noqa: ARG002 - never done here
        self.check_empty()

    def sinks(self) -> list[Sink]:
        return self._http.get(list[Sink], "/sinks")

    def put_sink(self, fence: Fence, sink: Sink) -> None:
        self._http.do("/sinks", fence=fence, sink=sink)

    def drop_sink(self, fence: Fence, name: str) -> None:
        self._http.do("/sinks/drop", fence=fence, name=name)

    def published(self) -> list[Published]:
        return self._http.get(list[Published], "/published")

    def publish_views(self, fence: Fence, views: Published) -> None:
        self._http.do("/published", fence=fence, views=views)

    def stop_views(self, fence: Fence, schema_name: str) -> None:
        self._http.do("/published/stop", fence=fence, schema_name=schema_name)

    def close(self) -> None:
        """As in a store. A service that does not respond times out by itself."""
        with suppress(StreamSqlError):
            self.let_go()
        with suppress(StreamSqlError):
            self.staged.close()
        self._heartbeats.end()
        self._http.close()

    # the runner

    def acquire(
        self, wait: bool = False, on_wait: lock.OnWait | None = None, owner: str = ""
    ) -> Fence:
        asking = _Asking(self._http)
        lock.acquire(asking, owner or lock.new_owner(), wait, on_wait)
        assert asking.grant is not None
        fence = self._held = asking.grant.fence
        self._heartbeats.begin("/runner/heartbeat", asking.grant.heard_within, fence=fence)
        return fence

    def release(self, fence: Fence) -> None:
        self._end(fence)
        self._http.do("/runner/release", fence=fence)

    def let_go(self) -> None:
        fence = self._held
        if fence is not None:
            self._end(fence)
            self._http.do("/runner/let-go", fence=fence)

    def newest_barrier(self, fence: Fence) -> int:
        return self._http.post(int, "/runner/newest-barrier", fence=fence)

    def resume(self, fence: Fence) -> bool:
        try:
            self._http.do("/runner/heartbeat", fence=fence)
        except StreamSqlError as error:
            if error.code != "META_CONFLICT":
                raise
            return False
        return True

    def holder(self) -> str:
        return self._http.get(str, "/runner/holder")

    def fence(self) -> Fence:
        return self._http.get(Fence, "/runner")

    def note(self, fence: Fence, action: str, detail: Mapping[str, Any]) -> None:
        self._http.do("/runner/note", fence=fence, action=action, detail=detail)

    def audit(self, limit: int = 100, before: int | None = None) -> list[Entry]:
        return self._http.get(list[Entry], "/audit", limit=limit, before=before)

    def _end(self, fence: Fence) -> None:
        if self._held == fence:
            self._held = None
            self._heartbeats.end("/runner/heartbeat")

    # barriers

    def barrier(self, barrier: int) -> Barrier | None:
        return self._http.find(Barrier, f"/barriers/{barrier}")

    def newest_barriers(self, most: int) -> list[Barrier]:
        return self._http.get(list[Barrier], "/barriers/newest", most=most)

    def recent(self, newest: int, upto: int | None = None) -> list[Barrier]:
        return self._http.get(list[Barrier], "/barriers/recent", newest=newest, upto=upto)

    def unfinished(self) -> list[Barrier]:
        return self._http.get(list[Barrier], "/barriers/unfinished")

    def last_committed(self) -> int:
        return self._http.get(int, "/barriers/last-committed")

    def committed_before(self, barrier: int, most: int) -> list[int]:
        return self._http.get(list[int], "/barriers/committed", before=barrier, most=most)

    def kept_from(self) -> int:
        return self._http.get(int, "/barriers/kept-from")

    def inputs(self, barrier: int) -> dict[str, int | None]:
        return self._http.get(dict[str, int | None], f"/barriers/{barrier}/inputs")

    def inputs_as_of(self, barrier: int) -> dict[str, int | None]:
        return self._kept.inputs_as_of(barrier)

    def read_inputs_as_of(self, barrier: int) -> dict[str, int | None]:
        return self._http.get(dict[str, int | None], f"/barriers/{barrier}/inputs-as-of")

    def spans(self, barrier: int) -> dict[str, Span]:
        return self._http.get(dict[str, Span], f"/barriers/{barrier}/spans")

    def input_times(self, barrier: int) -> dict[str, float | None]:
        return self._http.get(dict[str, float | None], f"/barriers/{barrier}/input-times")

    def versions(self, barrier: int) -> list[TableVersion]:
        return self._http.get(list[TableVersion], f"/barriers/{barrier}/versions")

    def staged_jobs(self, barrier: int) -> dict[str, Job]:
        return self._http.get(dict[str, Job], f"/barriers/{barrier}/jobs")

    def begin(
        self,
        fence: Fence,
        inputs: Mapping[str, int | None] | None = None,
        committed: Mapping[str, float] | None = None,
    ) -> Barrier:
        pins, times = dict(inputs or {}), dict(committed or {})
        return self._http.post(Barrier, "/barriers", fence=fence, inputs=pins, committed=times)

    def add_inputs(
        self,
        fence: Fence,
        barrier: int,
        inputs: Mapping[str, int | None],
        committed: Mapping[str, float] | None = None,
    ) -> None:
        path, times = f"/barriers/{barrier}/inputs", dict(committed or {})
        self._http.do(path, fence=fence, inputs=inputs, committed=times)

    def add_spans(self, fence: Fence, barrier: int, spans: Mapping[str, Span]) -> None:
        self._http.do(f"/barriers/{barrier}/spans", fence=fence, spans=dict(spans))

    def stage_job(self, fence: Fence, barrier: int, job: Job) -> None:
        self._http.do(f"/barriers/{barrier}/jobs", fence=fence, job=job)

    def processed(self, fence: Fence, version: TableVersion) -> None:
        self.processed_many(fence, [version])

    def processed_many(self, fence: Fence, versions: Iterable[TableVersion]) -> None:
        staged = list(versions)
        if staged:
            path = f"/barriers/{common_barrier(staged)}/versions"
            self._http.do(path, fence=fence, versions=staged)

    def unstage(self, fence: Fence, barrier: int, table: str) -> list[str]:
        path = f"/barriers/{barrier}/unstage"
        return self._http.post(list[str], path, fence=fence, table=table)

    def precommit(self, fence: Fence, barrier: int) -> None:
        self._http.do(f"/barriers/{barrier}/precommit", fence=fence)

    def written(self, fence: Fence, barrier: int, table: str, snapshot: int | None = None) -> None:
        path = f"/barriers/{barrier}/written"
        self._http.do(path, fence=fence, table=table, snapshot=snapshot)

    def commit(self, fence: Fence, barrier: int) -> None:
        self._http.do(f"/barriers/{barrier}/commit", fence=fence)

    def abort(self, fence: Fence, barrier: int) -> None:
        self._http.do(f"/barriers/{barrier}/abort", fence=fence)

    def outlook(self, retention: Retention) -> Outlook:
        return self._http.get(Outlook, "/barriers/old/outlook", **vars(retention))

    def keep_from(self, fence: Fence, retention: Retention) -> int:
        return self._http.post(int, "/barriers/old/keep", fence=fence, retention=retention)

    def surplus(self, barrier: int) -> dict[str, int]:
        return self._http.get(dict[str, int], "/barriers/old/surplus", barrier=barrier)

    def forget(self, fence: Fence, retention: Retention) -> Forgotten:
        path = "/barriers/old/forget"
        return self._http.post(Forgotten, path, fence=fence, retention=retention)

    # tables

    def outside_tables(self) -> set[str]:
        return self._kept.outside_tables()

    def read_outside_tables(self) -> set[str]:
        return self._http.get(set[str], "/outside-tables")

    def latest(self, table: str) -> TableVersion | None:
        return self._http.find(TableVersion, "/versions/latest", table=table)

    def latest_all(self, barrier: int | None = None) -> dict[str, TableVersion]:
        return self._kept.latest_all(barrier)

    def read_latest_all(self, barrier: int | None) -> dict[str, TableVersion]:
        return self._http.get(dict[str, TableVersion], "/versions", barrier=barrier)

    def newest_versions(self, most: int) -> list[TableVersion]:
        return self._http.get(list[TableVersion], "/versions/newest", most=most)

    def versions_between(self, first: int, last: int) -> list[TableVersion]:
        found = list[TableVersion]
        return self._http.get(found, "/versions/between", first=first, last=last)

    def pins_between(self, first: int, last: int) -> dict[int, dict[str, Pin]]:
        return self._http.get(dict[int, dict[str, Pin]], "/pins", first=first, last=last)

    def history(self, table: str, after: int = 0) -> list[TableVersion]:
        return self._http.get(list[TableVersion], "/versions/history", table=table, after=after)

    def jobs(self) -> dict[str, Job]:
        return self._kept.jobs()

    def read_jobs(self) -> dict[str, Job]:
        return self._http.get(dict[str, Job], "/jobs")

    def provisional_jobs(self) -> dict[str, Job]:
        return self._http.get(dict[str, Job], "/jobs/provisional")

    def drop_job(self, fence: Fence, table: str) -> None:
        self._http.do("/jobs/drop", fence=fence, table=table)

    def topology(self) -> list[tuple[str, str]]:
        return [(edge.source, edge.sink) for edge in self._http.get(list[Edge], "/topology")]

    def readers(self, table: str) -> list[str]:
        return self._http.get(list[str], "/topology/readers", table=table)

    # change files

    def change_files(self, table: str, after_barrier: int, upto_barrier: int) -> list[ChangeFile]:
        # Barriers begin at 1: the service accepts only barrier numbers.
        after, upto = max(after_barrier, 0), max(upto_barrier, 0)
        found = list[ChangeFile]
        return self._http.get(found, "/change-files", table=table, after=after, upto=upto)

    def tables_with_change_files(self) -> list[str]:
        return self._http.get(list[str], "/change-files/tables")

    def aborted_change_files(self) -> list[ChangeFile]:
        return self._http.get(list[ChangeFile], "/change-files/aborted")

    def add_change_file(self, fence: Fence, change: ChangeFile) -> None:
        self._http.do("/change-files", fence=fence, change=change)

    def forget_change_files(self, fence: Fence, table: str, upto_barrier: int) -> list[str]:
        upto = {"fence": fence, "table": table, "barrier": upto_barrier}
        return self._http.post(list[str], "/change-files/forget", **upto)

    def forget_aborted_change_files(self, fence: Fence) -> list[str]:
        return self._http.post(list[str], "/change-files/forget-aborted", fence=fence)

    def forget_change_files_at(self, fence: Fence, paths: Iterable[str]) -> None:
        self._http.do("/change-files/forget-paths", fence=fence, paths=list(paths))


class LeasesClient:
    def __init__(self, http: Transport) -> None:
        self._http = http

    def take(self, owner: str, barrier: int, seconds: float = LEASE_SECONDS) -> Lease:
        asked = {"owner": owner, "barrier": barrier, "seconds": seconds}
        return self._http.post(Lease, "/leases", **asked)

    def renew(self, lease: str, seconds: float = LEASE_SECONDS) -> float:
        return self._http.post(float, f"/leases/{lease}/renew", seconds=seconds)

    def give_back(self, lease: str) -> None:
        self._http.delete(f"/leases/{lease}")

    def live(self) -> list[Lease]:
        return self._http.get(list[Lease], "/leases")

    def ended(self) -> list[str]:
        return self._http.get(list[str], "/leases/records/ended")

    def forget(self, leases: Iterable[str]) -> None:
        self._http.do("/leases/records/forget", leases=list(leases))


class LeadersClient:
    def __init__(self, http: Transport) -> None:
        self._http = http

    def lead(self, owner: str, seconds: float = LEADER_SECONDS) -> Leader:
        return self._http.post(Leader, "/leader", owner=owner, seconds=seconds)

    def resign(self, owner: str) -> None:
        self._http.do("/leader/resign", owner=owner)

    def leader(self) -> Leader | None:
        return self._http.find(Leader, "/leader")


class StagedClient:
    """The owner that stages for this process lives in the service and depends on heartbeats."""

    def __init__(self, http: Transport, heartbeats: Heartbeats) -> None:
        self._http = http
        self._heartbeats = heartbeats
        self._owner = ""
        self._owners: dict[str, str] = {}
        self._changing = threading.Lock()

    @property
    def owner(self) -> str:
        return self._owner

    def record(self, token: str, table: str, body: str) -> None:
        with self._changing:
            known = {"owner": self._owner, "token": token, "table": table, "body": body}
            try:
                told = self._http.post(StagedOwner, "/staged", **known)
            except StreamSqlError as error:
                if error.code == "META_CONFLICT":
                    self._end()
                raise
            if not self._owner:
                self._owner = told.owner
                self._heartbeats.begin(_STAGES, told.heard_within, owner=told.owner)
            self._owners[token] = told.owner

    def confirm(self, token: str) -> None:
        self._http.do("/staged/confirm", owner=self._owners.get(token, ""), token=token)

    def forget(self, token: str) -> None:
        with self._changing:
            self._http.do("/staged/forget", owner=self._owners.get(token, ""), token=token)
            self._owners.pop(token, None)
            if not self._owners:
                self._end()

    def records(self) -> list[StagedRecord]:
        return self._http.get(list[StagedRecord], "/staged")

    @contextmanager
    def orphans(self) -> Iterator[list[StagedRecord]]:
        sweep = self._http.post(Sweep, "/staged/sweeps")
        path = f"/staged/sweeps/{sweep.id}"
        self._heartbeats.begin(f"{path}/heartbeat", sweep.heard_within)
        try:
            yield sweep.records
        finally:
            self._heartbeats.end(f"{path}/heartbeat")
            # A service that does not respond ends it by itself.
            with suppress(StreamSqlError):
                self._http.delete(path)

    def close(self) -> None:
        with self._changing:
            owner = self._owner
            self._end()
            if owner:
                self._http.do("/staged/end", owner=owner)

    def _end(self) -> None:
        self._owner = ""
        self._heartbeats.end(_STAGES)


class _Asking:
    """Asking a service for the runner lock."""

    def __init__(self, http: Transport) -> None:
        self._http = http
        self.grant: Grant | None = None

    def try_acquire(self, owner: str) -> bool:
        try:
            self.grant = self._http.post(Grant, "/runner", owner=owner)
        except StreamSqlError as error:
            if error.code != "WAREHOUSE_BUSY":
                raise
            return False
        return True

    def holder(self) -> str:
        return self._http.get(str, "/runner/holder")

    def release(self) -> None:
        raise NotImplementedError("the client gives it back")
