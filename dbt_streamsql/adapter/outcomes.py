"""What became of the nodes of one dbt command: whether, and what of it, may be published."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from dbt.adapters.events.logging import AdapterLogger

from dbt_streamsql.errors import StreamSqlError

if TYPE_CHECKING:
    from dbt_streamsql.engine import Engine

logger = AdapterLogger("StreamSQL")

POLICIES = ("run", "passed_subgraph", "model")
"""When a run is published: at its end if nothing failed; at its end, without what failed and what
depends on that; each view as soon as it is built."""

_FAILED = frozenset({"error", "fail", "runtime error", "partial success"})


class Outcomes:
    """Listens to dbt's events, in whose thread ever. One for each command."""

    def __init__(self) -> None:
        self._failed: dict[str, str] = {}
        self._needs: dict[str, tuple[str, ...]] = {}
        self._lock = threading.Lock()

    def heard(self, message: Any) -> None:
        """One event of dbt."""
        if message.info.name != "NodeFinished":
            return
        status = str(message.data.run_result.status).lower()
        # What is outside does not hold back what is published.
        if status in _FAILED and message.data.node_info.materialized != "sink":
            with self._lock:
                self._failed[message.data.node_info.unique_id] = status

    def tests(self, test: str, nodes: Iterable[str]) -> None:
        """A data test looks at these nodes: its failure is theirs."""
        with self._lock:
            self._needs[test] = tuple(nodes)

    def publish(self, engine: Engine, policy: str) -> list[str] | None:
        """End the run of an open epoch: publish it, or what the policy leaves of it.

        The tables that were left out; None when nothing was published.
        """
        held: list[str] = []
        with self._lock:
            failed = dict(self._failed)
        if failed and policy == "run":
            barrier = engine.hold()
            names = ", ".join(sorted(node.split(".")[2] for node in failed))
            logger.warning(
                f"Nothing of this run is published, since it failed in {names}. "
                "`publish: passed_subgraph` publishes what does not depend on what failed"
            )
            if barrier:
                logger.warning(
                    f"Barrier {barrier} stays staged until the next run. "
                    "To look at it: `dbt show --vars 'consistency: read_uncommitted'`"
                )
            return None
        if failed and policy == "passed_subgraph":
            # The failure of a test is that of the nodes that it looks at.
            blamed = {node for name in failed for node in self._needs.get(name, (name,))}
            held = engine.withdraw(blamed)
            if held:
                logger.warning(f"Not published, since they failed: {', '.join(held)}")
        report = engine.publish()
        for done in report.sinks.values():
            if done.error is None:
                logger.info(f"Delivered {done.sink} up to barrier {done.barrier}: {done.target}")
        if any(table.mode != "noop" for table in report.tables.values()):
            logger.info(f"Published barrier {report.barrier}")
        return held


def check_policy(policy: object) -> str:
    """The policy by its name. Error: CONFIG_INVALID."""
    if policy not in POLICIES:
        raise StreamSqlError(
            "CONFIG_INVALID", "unknown `publish`", given=repr(policy), allowed=", ".join(POLICIES)
        )
    return str(policy)
