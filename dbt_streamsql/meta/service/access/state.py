"""The shared state of a service's routes: the store, the tokens, and what is held for callers."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable
from contextlib import ExitStack, suppress

from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.meta.model.records import Fence
from dbt_streamsql.meta.model.tokens import Tokens
from dbt_streamsql.meta.service.access.holds import LOOK_SECONDS, Hold, Holds
from dbt_streamsql.meta.store.staged_tables import SqlStagedLedger, StagedRecord, cleaned_up
from dbt_streamsql.meta.store.store import SqlMetaStore

RUNNER_SECONDS = 30.0
"""A runner that is silent for this long may be succeeded; its fence then stops it."""
OWNER_SECONDS = 3600.0
"""No fence guards a plain table that is being staged, and no process waits for the leftovers of a
dead one: so the limit is long."""


class Service:
    """One served store. `close` it when done: it then frees everything held here."""

    def __init__(
        self,
        store: SqlMetaStore,
        tokens: Tokens,
        runner_seconds: float = RUNNER_SECONDS,
        owner_seconds: float = OWNER_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`clock`: the time in seconds by which silence is measured."""
        self.store = store
        self.tokens = tokens
        self.runner_seconds = runner_seconds
        self.owner_seconds = owner_seconds
        self._runners: Holds[SqlMetaStore] = Holds(clock)
        self._ledgers: Holds[SqlStagedLedger] = Holds(clock)
        self._sweeps: Holds[ExitStack] = Holds(clock)
        self._stop = threading.Event()
        self._watch = threading.Thread(target=self._look, name="streamsql-holds", daemon=True)

    def start(self) -> None:
        # Their processes may be alive and send heartbeats soon: it was the service that was down.
        for owner in {record.owner for record in self.store.staged.records()}:
            ledger = SqlStagedLedger.adopt(self.store.database, owner)
            if ledger is not None:
                self._keep_ledger(ledger, "")
        self._watch.start()

    def close(self) -> None:
        self._stop.set()
        if self._watch.is_alive():
            self._watch.join()
        for holds in (self._runners, self._ledgers, self._sweeps):
            holds.end_all()

    def look(self) -> None:
        """Let go of everything whose holder has been silent for too long."""
        for holds in (self._runners, self._ledgers, self._sweeps):
            holds.end_silent()

    def _look(self) -> None:
        while not self._stop.wait(LOOK_SECONDS):
            with suppress(StreamSqlError):
                self.look()

    # the runner

    def acquire(self, who: str, owner: str) -> Fence:
        """Make `owner`, a remote process, the one runner; otherwise WAREHOUSE_BUSY."""
        runner = self.store.acting_for(who)
        fence = runner.acquire(owner=owner)
        self._keep(fence, who, runner)
        return fence

    def heartbeat(self, who: str, fence: Fence) -> None:
        """The runner is alive. A lost lock is restored if no other runner has had it."""
        if self._runners.hear(fence, who) is not None:
            return
        runner = self.store.acting_for(who)
        if not runner.resume(fence):
            raise StreamSqlError(
                "META_CONFLICT",
                "another runner may have taken over",
                given=str(fence),
                allowed=str(self.store.fence()),
                hint="run again: an unfinished barrier is cleaned up first",
            )
        self._keep(fence, who, runner)

    def release(self, who: str, fence: Fence) -> None:
        runner = self._runners.take(fence, who) or self.store.acting_for(who)
        runner.release(fence)

    def let_go(self, who: str, fence: Fence) -> None:
        runner = self._runners.take(fence, who)
        if runner is not None:
            runner.let_go()

    def _keep(self, fence: Fence, who: str, runner: SqlMetaStore) -> None:
        self._runners.keep(fence, Hold(runner, who, self.runner_seconds, runner.let_go))

    # plain tables that are being staged

    def stage(self, who: str, owner: str, token: str, table: str, body: str) -> str:
        """Record what is about to be staged; returns its owner name (`owner`, '': a new one)."""
        ledger = self.ledger(who, owner) if owner else SqlStagedLedger(self.store.database)
        if ledger is None:
            raise cleaned_up(token)
        ledger.record(token, table, body)
        self._keep_ledger(ledger, who)
        return ledger.owner

    def ledger(self, who: str, owner: str) -> SqlStagedLedger | None:
        """The ledger of a living owner; one that was away may come back until it is swept."""
        held = self._ledgers.hear(owner, who)
        if held is None:
            held = SqlStagedLedger.adopt(self.store.database, owner)
            if held is not None:
                self._keep_ledger(held, who)
        return held

    def confirm(self, who: str, owner: str, token: str) -> None:
        ledger = self.ledger(who, owner)
        if ledger is None:
            raise cleaned_up(token)
        ledger.confirm(token)

    def forget(self, who: str, owner: str, token: str) -> None:
        ledger = self.ledger(who, owner) or SqlStagedLedger(self.store.database)
        ledger.forget(token)
        if not ledger.owner:
            self._ledgers.take(owner, who)

    def end_owner(self, who: str, owner: str) -> None:
        ledger = self._ledgers.take(owner, who)
        if ledger is not None:
            ledger.close()

    def _keep_ledger(self, ledger: SqlStagedLedger, who: str) -> None:
        self._ledgers.keep(ledger.owner, Hold(ledger, who, self.owner_seconds, ledger.close))

    # removing what dead processes left

    def begin_sweep(self, who: str) -> tuple[str, list[StagedRecord]]:
        held = ExitStack()
        records = held.enter_context(SqlStagedLedger(self.store.database).orphans())
        sweep = uuid.uuid4().hex
        self._sweeps.keep(sweep, Hold(held, who, self.owner_seconds, held.close))
        return sweep, records

    def hear_sweep(self, who: str, sweep: str) -> None:
        if self._sweeps.hear(sweep, who) is None:
            raise StreamSqlError("META_CONFLICT", "the sweep has ended", given=sweep)

    def end_sweep(self, who: str, sweep: str) -> None:
        held = self._sweeps.take(sweep, who)
        if held is not None:
            held.close()
