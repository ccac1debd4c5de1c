"""What every store of MetaService can do, wherever it is: in a database (`store.py`), served over
HTTP (`meta/client/client.py`), or in memory (in tests).

Every write is one transaction that first checks the fence. A call that raises has changed nothing,
with one exception: META_UNREACHABLE from a lost connection may hide a step that was made. Ask
`barrier(id)` then; no step here is made twice. All of it is safe from several threads.
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
    from dbt_streamsql.meta.store import lock, recovery
    from dbt_streamsql.meta.store.kept import States
    from dbt_streamsql.meta.store.retention import Forgotten, Outlook, Retention
    from dbt_streamsql.meta.store.staged_tables import StagedRecord


class Leases(Protocol):
    """The leases of one store. The right to write is not needed."""

    def take(self, owner: str, barrier: int, seconds: float = LEASE_SECONDS) -> Lease:
        """Hold a committed barrier that is not forgotten; of another one META_CONFLICT."""

    def renew(self, lease: str, seconds: float = LEASE_SECONDS) -> float:
        """Hold it longer; until when. LEASE_LOST when it has ended."""

    def give_back(self, lease: str) -> None:
        """End it; harmless when it has ended already."""

    def live(self) -> list[Lease]:
        """Those that have not ended, by barrier."""

    def ended(self) -> list[str]:
        """The leases that have ended and whose records are still there.

        They have ended for good: what they held goes now, and a clock that is set back must not
        let them live again.
        """

    def forget(self, leases: Iterable[str]) -> None:
        """Remove the records of leases: nothing is left of what they held."""


class Leaders(Protocol):
    """The leader of one store. The right to write is not needed."""

    def lead(self, owner: str, seconds: float = LEADER_SECONDS) -> Leader:
        """Who leads now: `owner`, for so long from now on, if nobody else does."""

    def resign(self, owner: str) -> None:
        """Let another one lead at once; harmless when another one does already."""

    def leader(self) -> Leader | None:
        """Who leads; None when nobody does."""


class StagedLedger(Protocol):
    """What is staged outside barriers, and by whom."""

    @property
    def owner(self) -> str:
        """This process for as long as it has something staged; '' before."""

    def record(self, token: str, table: str, body: str) -> None:
        """Write down what is about to be staged."""

    def confirm(self, token: str) -> None:
        """META_CONFLICT when another process has taken this one for dead and cleaned up."""

    def forget(self, token: str) -> None:
        """Nothing of it is left to abort."""

    def records(self) -> list[StagedRecord]:
        """Everything that is recorded, of living and dead owners."""

    def orphans(self) -> AbstractContextManager[list[StagedRecord]]:
        """The records of dead owners, held against every other process inside the block."""

    def close(self) -> None:
        """This process stages nothing any more; what it could not abort is an orphan now."""


class MetaReader(Protocol):
    """Questions about barriers, versions, jobs and change files."""

    def states(self) -> States:
        """What tells whether the store has changed; see `meta/store/kept.py`."""

    def barrier(self, barrier: int) -> Barrier | None:
        """The barrier, or None when it never was or was forgotten."""

    def newest_barriers(self, most: int) -> list[Barrier]:
        """The newest barriers in any state, newest first."""

    def unfinished(self) -> list[Barrier]:
        """Barriers that a crash (or a run at work) left in OPEN or PRECOMMIT; at most one."""

    def last_committed(self) -> int:
        """The newest barrier in COMMIT, 0 before the first."""

    def committed_before(self, barrier: int, most: int) -> list[int]:
        """Committed barriers below that one that can still be asked for, newest first."""

    def recent(self, newest: int, upto: int | None = None) -> list[Barrier]:
        """The newest barriers in any state (those up to `upto`, if given), oldest first."""

    def inputs(self, barrier: int) -> dict[str, int | None]:
        """The pinned snapshot of each outside table of the barrier."""

    def inputs_as_of(self, barrier: int) -> dict[str, int | None]:
        """The newest pinned snapshot of each outside table at that barrier, or before it."""

    def spans(self, barrier: int) -> dict[str, Span]:
        """What each streaming table read at the barrier: those that had something to read."""

    def input_times(self, barrier: int) -> dict[str, float | None]:
        """When each pinned snapshot of the barrier was committed; None where it is not known."""

    def pins_between(self, first: int, last: int) -> dict[int, dict[str, Pin]]:
        """The pinned inputs of the barriers first to last, both included, by barrier and table."""

    def outside_tables(self) -> set[str]:
        """Every outside table that some barrier pinned, whether a job still reads it or not."""

    def versions(self, barrier: int) -> list[TableVersion]:
        """What the barrier holds, by table name; also of an open or an aborted one."""

    def newest_versions(self, most: int) -> list[TableVersion]:
        """What the newest barriers hold, newest first, then by table name."""

    def versions_between(self, first: int, last: int) -> list[TableVersion]:
        """What the barriers first to last hold, both included; by barrier and table name."""

    def latest(self, table: str) -> TableVersion | None:
        """The newest committed version of the table; None if it has none or was dropped."""

    def latest_all(self, barrier: int | None = None) -> dict[str, TableVersion]:
        """The newest committed version of every table, in one query.

        With `barrier`: as it was when that barrier committed, dropped tables included. Such a
        barrier must be committed and not forgotten, else META_CONFLICT.
        """

    def history(self, table: str, after: int = 0) -> list[TableVersion]:
        """The committed versions of the table that are not forgotten, newest first, down to the
        one in force at barrier `after` (0: all).

        Those of an earlier table of the same name, dropped since, are among them.
        """

    def kept_from(self) -> int:
        """The oldest barrier that can be asked for; earlier ones were forgotten."""

    def jobs(self) -> dict[str, Job]:
        """The current definitions, by table name; provisional ones are not among them."""

    def staged_jobs(self, barrier: int) -> dict[str, Job]:
        """The definitions that become current when the barrier commits."""

    def provisional_jobs(self) -> dict[str, Job]:
        """The definitions of the unfinished barrier, by table name."""

    def topology(self) -> list[tuple[str, str]]:
        """The edges (source, sink) of the current jobs, sorted."""

    def readers(self, table: str) -> list[str]:
        """The tables whose current job reads `table` directly."""

    def change_files(self, table: str, after_barrier: int, upto_barrier: int) -> list[ChangeFile]:
        """The table's changes in (after_barrier, upto_barrier], oldest first, no aborted ones."""

    def tables_with_change_files(self) -> list[str]:
        """The tables that have any, sorted."""

    def aborted_change_files(self) -> list[ChangeFile]:
        """Change files of aborted barriers: to delete, then `forget_aborted_change_files`."""

    def sinks(self) -> list[Sink]:
        """What is delivered to systems outside, by name."""

    def published(self) -> list[Published]:
        """The schemas in which SQL views show the maintained ones, by name."""

    def fence(self) -> Fence:
        """The newest fence; `owner` is '' when it was given back."""

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
        """Eight characters that tell this store from another, whichever way it is reached."""

    def acquire(
        self, wait: bool = False, on_wait: lock.OnWait | None = None, owner: str = ""
    ) -> Fence:
        """Become the one runner. Held by another: WAREHOUSE_BUSY, or wait for it to end or die.

        `on_wait(owner)` is called when waiting begins and whenever the holder changes. `owner`
        is another process that this one runs for.
        """

    def release(self, fence: Fence) -> None:
        """Give the right back; harmless when it was lost already."""

    def newest_barrier(self, fence: Fence) -> int:
        """The newest barrier there is while the fence is current, else META_CONFLICT.

        What belongs to it or to an earlier one is this runner's to remove; what a successor makes
        has a higher number.
        """

    def let_go(self) -> None:
        """Free the runner lock as a process does that dies: the fence is not given back."""

    def resume(self, fence: Fence) -> bool:
        """Hold the lock again for a fence that nobody has succeeded; False when it is too late."""

    def holder(self) -> str:
        """Who holds the runner lock (`host:pid:random`); '' when nobody does, or not known."""

    def note(self, fence: Fence, action: str, detail: Mapping[str, Any]) -> None:
        """Add a line to the audit log, for what is more than a commit: a revision, a rollback."""

    def close(self) -> None:
        """Let go of the connections and of the runner lock; the fence is not given back."""

    def begin(
        self,
        fence: Fence,
        inputs: Mapping[str, int | None] | None = None,
        committed: Mapping[str, float] | None = None,
    ) -> Barrier:
        """Open the next barrier with its pinned inputs; all earlier ones must be closed.

        `committed`: when each of these snapshots was, as far as that is known.
        """

    def add_inputs(
        self,
        fence: Fence,
        barrier: int,
        inputs: Mapping[str, int | None],
        committed: Mapping[str, float] | None = None,
    ) -> None:
        """Pin more inputs, or pin an input anew; `committed` as in `begin`."""

    def add_spans(self, fence: Fence, barrier: int, spans: Mapping[str, Span]) -> None:
        """Record, before they are read, what streaming tables read at the barrier."""

    def stage_job(self, fence: Fence, barrier: int, job: Job) -> None:
        """Register a definition that becomes current when the barrier commits.

        DUPLICATE_WRITER when another model writes the table, CYCLE when the table would feed
        itself; both look at the current definitions and at the provisional ones.
        """

    def processed(self, fence: Fence, version: TableVersion) -> None:
        """Record one staged version."""

    def processed_many(self, fence: Fence, versions: Iterable[TableVersion]) -> None:
        """Record staged (or unchanged) versions of one barrier, all in one statement.

        While the barrier is open a table may be staged again; the newest record counts.
        """

    def unstage(self, fence: Fence, barrier: int, table: str) -> list[str]:
        """Take one table out of an open barrier: its new definition and its version.

        Returns the paths of its change files, which stay listed: `forget_change_files_at` once
        they are gone. For a model that failed while the others go on.
        """

    def precommit(self, fence: Fence, barrier: int) -> None:
        """The point of no return: every table of the barrier is staged, from here on only forward.

        Refused while a provisional definition has no version in the barrier (see `unstage`).
        """

    def written(self, fence: Fence, barrier: int, table: str, snapshot: int | None = None) -> None:
        """Record that the staged version of `table` is visible now.

        `snapshot`: its id when publishing gave it a new one; versions of the same barrier that
        were computed from the staged one then name the new one too.
        """

    def commit(self, fence: Fence, barrier: int) -> None:
        """Close the barrier: its versions are the latest, its definitions the current ones."""

    def abort(self, fence: Fence, barrier: int) -> None:
        """Give an OPEN barrier up: its definitions are forgotten, its versions never count.

        The rows of its versions and change files stay, so that what they name can be removed.
        """

    def drop_job(self, fence: Fence, table: str) -> None:
        """Forget the definition and the latest version of `table` at once, in any barrier's state
        but PRECOMMIT; what an open barrier has staged for it goes too.

        Its change files stay listed until `forget_change_files`; unknown tables are no error.
        """

    def add_change_file(self, fence: Fence, change: ChangeFile) -> None:
        """List a change file of an open barrier; the same path again replaces its row count."""

    def forget_change_files(self, fence: Fence, table: str, upto_barrier: int) -> list[str]:
        """Unlist the table's change files up to that barrier, included; returns their paths."""

    def forget_aborted_change_files(self, fence: Fence) -> list[str]:
        """Unlist the change files of aborted barriers; returns their paths."""

    def forget_change_files_at(self, fence: Fence, paths: Iterable[str]) -> None:
        """Forget change files by path, after the files themselves are gone."""

    def outlook(self, retention: Retention) -> Outlook:
        """Which barriers the retention would let go now; changes nothing."""

    def keep_from(self, fence: Fence, retention: Retention) -> int:
        """Let earlier barriers go: from here on nobody can ask for them, or lease them.

        Returns the oldest barrier that can be read. Their rows stay until `forget`, so that what
        they name can be removed.
        """

    def surplus(self, barrier: int) -> dict[str, int]:
        """By table, how many versions there are that were superseded at the barrier, or before.

        With `kept_from()`: those whose snapshots nobody can ask for any more.
        """

    def forget(self, fence: Fence, retention: Retention) -> Forgotten:
        """Remove the rows of barriers that have gone, after what they name is removed, and the
        lines of the audit log that are older than the retention; of these 10,000 always stay.

        A barrier with a change file that is still listed stays too. Again while there is `more`.
        """

    def put_sink(self, fence: Fence, sink: Sink) -> None:
        """Define a sink, or say how far it has come; what was known under its name goes."""

    def drop_sink(self, fence: Fence, name: str) -> None:
        """Deliver nothing to it any more; no error when there is none of that name."""

    def publish_views(self, fence: Fence, views: Published) -> None:
        """Keep SQL views of the maintained ones in a schema, from now on."""

    def stop_views(self, fence: Fence, schema_name: str) -> None:
        """Keep none in that schema any more; no error when there were none."""

    def check_empty(self) -> None:
        """META_CONFLICT when this store can not be rebuilt: it remembers something."""

    def rebuild(self, fence: Fence, ledger: recovery.Ledger) -> None:
        """Let an empty store remember what another one did, under the name of that."""
