"""Works only while no other runner of the same store does."""

from __future__ import annotations

import logging
import threading
from contextlib import suppress

from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.meta.store.api import Leaders
from dbt_streamsql.meta.store.leaders import LEADER_SECONDS
from dbt_streamsql.meta.store.sql.lock import new_owner

SAYS_SECONDS = LEADER_SECONDS / 3
"""How often a leader sends a heartbeat, and a standby asks to lead."""

log = logging.getLogger("dbt_streamsql")


class Leadership:
    """This process as one candidate. A thread keeps the leadership until `close`."""

    def __init__(self, leaders: Leaders, says: float = SAYS_SECONDS) -> None:
        """`says`: the interval of its heartbeats, in seconds."""
        self.owner = new_owner()
        self._leaders = leaders
        self._says = says
        self._leader = ""
        self._closed = threading.Event()
        self._asking = threading.Lock()
        self._thread: threading.Thread | None = None

    @property
    def leader(self) -> str:
        """The leader as of the last request (`host:pid:random`)."""
        return self._leader

    @property
    def mine(self) -> bool:
        """Whether this process leads, as far as it knows."""
        return self._leader == self.owner

    def seek(self) -> bool:
        """Ask whether this process may lead now. Error: META_UNREACHABLE."""
        self._ask()
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._keep, name="streamsql-leader", daemon=True
            )
            self._thread.start()
        return self.mine

    def close(self) -> None:
        """Let another process lead at once."""
        self._closed.set()
        if self._thread is not None:
            self._thread.join()
        # An unreachable store gets no more heartbeats, which has the same effect a little later.
        with suppress(StreamSqlError):
            self._leaders.resign(self.owner)

    def _ask(self) -> None:
        with self._asking:
            self._leader = self._leaders.lead(self.owner, LEADER_SECONDS).owner

    def _keep(self) -> None:
        while not self._closed.wait(self._says):
            try:
                self._ask()
            except StreamSqlError as error:
                # Another process may be the leader by now.
                self._leader = ""
                log.debug("sending a heartbeat of this runner failed: %s", error)
