"""The interface of every MetaService store, wherever it is: in a database (`store.py`), served
over HTTP (`meta/client/client.py`), or in memory (in tests).

Every write is one transaction that first checks the fence. A call that raises has changed nothing,
with one exception: META_UNREACHABLE from a lost connection may hide a step that succeeded. Then
check `barrier(id)`; no step here is applied twice. Everything is thread-safe.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

from dbt_streamsql.meta.store.leaders import LEADER_SECONDS
from dbt_streamsql.meta.store.leases import LEASE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

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
    from dbt_streamsql.meta.store import recovery
    from dbt_streamsql.meta.store.kept import States
    from dbt_streamsql.meta.store.retention import Forgotten, Outlook, Retention
    from dbt_streamsql.meta.store.sql import lock
    from dbt_streamsql.meta.store.staged_tables import StagedRecord


class Leases(Protocol):
    """The leases of one store. They do not need the right to write."""

    def take(self, owner: str, barrier: int, seconds: float = LEASE_SECONDS) -> Lease:
        """Hold a committed barrier that is still kept; META_CONFLICT for any other."""

    def renew(self, lease: str, seconds: float = LEASE_SECONDS) -> float:
        """Extend a lease; returns its new end. LEASE_LOST when it has already ended."""

    def give_back(self, lease: str) -> None:
        """End a lease; harmless when it has already ended."""

    def live(self) -> list[Lease]:
        """The leases that have not ended, by barrier."""

    def ended(self) -> list[str]:
        """The leases that have ended and still have records.

        They have ended for good: what they held is removed now, and a clock that is set back must
        not revive them.
        """

    def forget(self, leases: Iterable[str]) -> None:
        """Remove the records of leases: none of the data that they held is left."""


class Leaders(Protocol):
    """The leader of one store. It does not need the right to write."""

    def lead(self, owner: str, seconds: float = LEADER_SECONDS) -> Leader:
        """Who leads now: `owner`, for that long from now on, if there is no other leader."""

    def resign(self, owner: str) -> None:
        """Let another runner lead at once; harmless when another one already does."""

    def leader(self) -> Leader | None:
        """The leader; None when there is none."""


class StagedLedger(Protocol):
    """What is staged outside barriers, and by which owners."""

    @property
    def owner(self) -> str:
        """The name of this process while it has something staged; '' before."""

    def record(self, token: str, table: str, body: str) -> None:
        """Record what is about to be staged."""

    def confirm(self, token: str) -> None:
        """META_CONFLICT when another process has considered this one dead and cleaned up."""

    def forget(self, token: str) -> None:
        """Remove a record: nothing of it is left to abort."""

    def records(self) -> list[StagedRecord]:
        """All records, of living and dead owners."""

    def orphans(self) -> AbstractContextManager[list[StagedRecord]]:
        """The records of dead owners, locked against all other processes inside the block."""

    def close(self) -> None:
        """This process stages nothing more; what it could not abort is an orphan now."""


class MetaReader(Protocol):
    """Queries for barriers, versions, jobs and change files."""

    def states(self) -> States:
        """Values that show whether the store has changed; see `meta/store/kept.py`."""

    def barrier(self, barrier: int) -> Barrier | None:
        """The barrier, or None when it never existed or was removed."""

    def newest_barriers(self, most: int) -> list[Barrier]:
        """The newest barriers in any state, newest first."""

    def unfinished(self) -> list[Barrier]:
        """Barriers that a crash (or a running epoch) left in OPEN or PRECOMMIT; at most one."""

    def last_committed(self) -> int:
        """The newest barrier in COMMIT, 0 before the first."""

    def committed_before(self, barrier: int, most: int) -> list[int]:
        """Committed barriers below that one that can still be read, newest first."""

    def recent(self, newest: int, upto: int | None = None) -> list[Barrier]:
        """The newest barriers in any state (those up to `upto`, if given), oldest first."""

    def inputs(self, barrier: int) -> dict[str, int | None]:
        """The pinned snapshot of each outside table of the barrier."""

    def inputs_as_of(self, barrier: int) -> dict[str, int | None]:
        """The newest pinned snapshot of each outside table at that barrier, or before it."""

    def spans(self, barrier: int) -> dict[str, Span]:
        """What each streaming table read at the barrier, for those that had something to read."""

    def input_times(self, barrier: int) -> dict[str, float | None]:
        """When each pinned snapshot of the barrier was committed; None where unknown."""

    def pins_between(self, first: int, last: int) -> dict[int, dict[str, Pin]]:
        """The pinned inputs of the barriers first to last, both included, by barrier and table."""

    def outside_tables(self) -> set[str]:
        """Every outside table pinned by some barrier, whether or not a job still reads it."""

    def versions(self, barrier: int) -> list[TableVersion]:
        """The versions of a barrier, by table name; also of an open or an aborted one."""

    def newest_versions(self, most: int) -> list[TableVersion]:
        """The versions of the newest barriers, newest first, then by table name."""

    def versions_between(self, first: int, last: int) -> list[TableVersion]:
        """The versions of the barriers first to last, inclusive; by barrier and table name."""

    def latest(self, table: str) -> TableVersion | None:
        """The newest committed version of the table; None if it has none or was dropped."""

    def latest_all(self, barrier: int | None = None) -> dict[str, TableVersion]:
        """The newest committed version of every table, in one query.

        With `barrier`: the state when that barrier committed, including dropped tables. Such a
        barrier must be committed and still kept, otherwise META_CONFLICT.
        """

    def history(self, table: str, after: int = 0) -> list[TableVersion]:
        """The committed versions of the table that are still kept, newest first, down to the
        one in force at barrier `after` (0: all).

        They include those of an earlier, dropped table of the same name.
        """

    def kept_from(self) -> int:
        """The oldest barrier that can be read; earlier ones were removed."""

    def jobs(self) -> dict[str, Job]:
        """The current definitions, by table name, without provisional ones."""

    def staged_jobs(self, barrier: int) -> dict[str, Job]:
        """The definitions that become current when the barrier commits."""

    def provisional_jobs(self) -> dict[str, Job]:
        """The definitions of the unfinished barrier, by table name."""

    def topology(self) -> list[tuple[str, str]]:
        """The edges (source, sink) of the current jobs, sorted."""

    def readers(self, table: str) -> list[str]:
        """The tables whose current job reads `table` directly."""

    def change_files(self, table: str, after_barrier: int, upto_barrier: int) -> list[ChangeFile]:
        """The table's changes in (after_barrier, upto_barrier], oldest first, not aborted ones."""

    def tables_with_change_files(self) -> list[str]:
        """The tables that have change files, sorted."""

    def aborted_change_files(self) -> list[ChangeFile]:
        """Change files of aborted barriers: to delete, then `forget_aborted_change_files`."""

    def sinks(self) -> list[Sink]:
        """The deliveries to outside systems, by name."""

    def published(self) -> list[Published]:
        """The schemas with SQL views of the maintained views, by name."""

    def fence(self) -> Fence:
        """The newest fence; `owner` is '' when it was released."""

    def audit(self, limit: int = 100, before: int | None = None) -> list[Entry]:
        """The newest entries, newest first; `before`: only those with a smaller `id`."""


class MetaStore(MetaReader, Protocol):
    """The store with the right to write."""

    @property
    def leases(self) -> Leases: ...
    @property
    def leaders(self) -> Leaders: ...
    @property
    def staged(self) -> StagedLedger: ...

    @property
    def id(self) -> str:
        """Eight characters that identify this store, whichever way it is reached."""

    def acquire(
        self, wait: bool = False, on_wait: lock.OnWait | None = None, owner: str = ""
    ) -> Fence:
        """Become the one runner. If held: WAREHOUSE_BUSY, or wait until the holder ends or dies.

        `on_wait(owner)` is called when waiting begins and whenever the holder changes. `owner`
        is another process that this one acts for.
        """

    def release(self, fence: Fence) -> None:
        """Release the right to write; harmless when it was already lost."""

    def newest_barrier(self, fence: Fence) -> int:
        """The newest barrier, while the fence is current; otherwise META_CONFLICT.

        This runner may remove what belongs to it or to an earlier one; a successor's barriers
        have higher numbers.
        """

    def let_go(self) -> None:
        """Free the runner lock as a dying process does: the fence is not released."""

    def resume(self, fence: Fence) -> bool:
        """Hold the lock again for a fence without a successor; False when it is too late."""

    def holder(self) -> str:
        """The holder of the runner lock (`host:pid:random`); '' when it is free or unknown."""

    def note(self, fence: Fence, action: str, detail: Mapping[str, Any]) -> None:
        """Add a line to the audit log, for actions beyond a commit: a revision, a rollback."""

    def close(self) -> None:
        """Close the connections and free the runner lock; the fence is not released."""

    def begin(
        self,
        fence: Fence,
        inputs: Mapping[str, int | None] | None = None,
        committed: Mapping[str, float] | None = None,
    ) -> Barrier:
        """Open the next barrier with its pinned inputs; all earlier ones must be closed.

        `committed`: when each of these snapshots was committed, where known.
        """

    def add_inputs(
        self,
        fence: Fence,
        barrier: int,
        inputs: Mapping[str, int | None],
        committed: Mapping[str, float] | None = None,
    ) -> None:
        """Pin more inputs, or pin an input again; `committed` as in `begin`."""

    def add_spans(self, fence: Fence, barrier: int, spans: Mapping[str, Span]) -> None:
        """Record, before they are read, what streaming tables read at the barrier."""

    def stage_job(self, fence: Fence, barrier: int, job: Job) -> None:
        """Register a definition that becomes current when the barrier commits.

        DUPLICATE_WRITER when another model writes the table, CYCLE when the table would feed
        itself; both check the current and the provisional definitions.
        """

    def processed(self, fence: Fence, version: TableVersion) -> None:
        """Record one staged version."""

    def processed_many(self, fence: Fence, versions: Iterable[TableVersion]) -> None:
        """Record staged (or unchanged) versions of one barrier, all in one statement.

        While the barrier is open a table may be staged again; the newest record counts.
        """

    def unstage(self, fence: Fence, barrier: int, table: str) -> list[str]:
        """Remove one table from an open barrier: its new definition and its version.

        Returns the paths of its change files, which stay listed: call `forget_change_files_at`
        once they are deleted. For a model that failed while other models continue.
        """

    def precommit(self, fence: Fence, barrier: int) -> None:
        """The point of no return: every table of the barrier is staged, from here on only forward.

        Refused while a provisional definition has no version in the barrier (see `unstage`).
        """

    def written(self, fence: Fence, barrier: int, table: str, snapshot: int | None = None) -> None:
        """Record that the staged version of `table` is visible now.

        `snapshot`: its id when publishing gave it a new one; versions of the same barrier that
        were computed from the staged one then refer to the new one too.
        """

    def commit(self, fence: Fence, barrier: int) -> None:
        """Close the barrier: its versions are the latest, its definitions the current ones."""

    def abort(self, fence: Fence, barrier: int) -> None:
        """Abort an OPEN barrier: its definitions are discarded, its versions never count.

        The rows of its versions and change files stay, so that what they refer to can be removed.
        """

    def drop_job(self, fence: Fence, table: str) -> None:
        """Remove the definition and the latest version of `table` at once, in any barrier state
        but PRECOMMIT; what an open barrier has staged for it is removed too.

        Its change files stay listed until `forget_change_files`; unknown tables are not an error.
        """

    def add_change_file(self, fence: Fence, change: ChangeFile) -> None:
        """List a change file of an open barrier; the same path again replaces its row count."""

    def forget_change_files(self, fence: Fence, table: str, upto_barrier: int) -> list[str]:
        """Unlist the table's change files up to that barrier, inclusive; returns their paths."""

    def forget_aborted_change_files(self, fence: Fence) -> list[str]:
        """Unlist the change files of aborted barriers; returns their paths."""

    def forget_change_files_at(self, fence: Fence, paths: Iterable[str]) -> None:
        """Unlist change files by path, after the files themselves are deleted."""

    def outlook(self, retention: Retention) -> Outlook:
        """The barriers that the retention would drop now; changes nothing."""

    def keep_from(self, fence: Fence, retention: Retention) -> int:
        """Drop earlier barriers: from now on they can be neither read nor leased.

        Returns the oldest barrier that can be read. Their rows stay until `forget`, so that what
        they refer to can be removed.
        """

    def surplus(self, barrier: int) -> dict[str, int]:
        """By table, the number of versions that were superseded at or before the barrier.

        With `kept_from()`: those whose snapshots can no longer be read.
        """

    def forget(self, fence: Fence, retention: Retention) -> Forgotten:
        """Remove the rows of dropped barriers, after what they refer to is removed, and the lines
        of the audit log that are older than the retention; the newest 10,000 always stay.

        A barrier with a change file that is still listed stays too. Call again while there is
        `more`.
        """

    def put_sink(self, fence: Fence, sink: Sink) -> None:
        """Define a sink, or record its progress; replaces the record under its name."""

    def drop_sink(self, fence: Fence, name: str) -> None:
        """Stop delivering to a sink; no error when there is none of that name."""

    def publish_views(self, fence: Fence, views: Published) -> None:
        """Maintain SQL views of the maintained views in a schema, from now on."""

    def stop_views(self, fence: Fence, schema_name: str) -> None:
        """Stop maintaining views in that schema; no error when there were none."""

    def check_empty(self) -> None:
        """META_CONFLICT when this store cannot be rebuilt, because it is not empty."""

    def rebuild(self, fence: Fence, ledger: recovery.Ledger) -> None:
        """Restore the ledger of another store into an empty one, under the other's id."""
