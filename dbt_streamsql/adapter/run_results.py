"""The outcomes of one dbt command's nodes: whether, and what of it, may be published."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dbt.adapters.events.logging import AdapterLogger

from dbt_streamsql.adapter.config.folder_config import KEYS
from dbt_streamsql.adapter.profile.credentials import POLICIES
from dbt_streamsql.errors import StreamSqlError

if TYPE_CHECKING:
    from dbt_streamsql.engine import Engine

logger = AdapterLogger("StreamSQL")

_FAILED = frozenset({"error", "fail", "runtime error", "partial success"})


_PASSED = frozenset({"success", "pass", "warn"})


class Outcomes:
    """Listens to dbt's events, in any thread. One per command."""

    def __init__(self, needs: Callable[[str], Collection[str]]) -> None:
        """`needs`: the nodes that a node of the project depends on, by their ids."""
        self._needs_of = needs
        self._failed: dict[str, str] = {}
        self._staged: set[str] = set()
        self._undone: set[str] = set()
        self._needs: dict[str, tuple[str, ...]] = {}
        self._lock = threading.Lock()

    def heard(self, message: Any) -> None:
        """Handle one dbt event."""
        if message.info.name == "ArtifactWritten":
            # dbt reports its results when only the end of the command is left.
            if message.data.artifact_type == "RunExecutionResult" and self._undone:
                try:
                    self._have_retried(Path(message.data.artifact_path))
                except OSError as error:
                    # dbt continues silently when a listener fails.
                    logger.warning(f"`dbt retry` will not rebuild the unpublished models: {error}")
            return
        if message.info.name != "NodeFinished":
            return
        status = str(message.data.run_result.status).lower()
        node = message.data.node_info
        with self._lock:
            # External targets do not hold back what is published.
            if status in _FAILED and node.materialized != "sink":
                self._failed[node.unique_id] = status
            elif status in _PASSED and node.materialized in KEYS:
                self._staged.add(node.unique_id)

    def tests(self, test: str, nodes: Iterable[str]) -> None:
        """A data test reads these nodes: its failure is theirs."""
        with self._lock:
            self._needs[test] = tuple(nodes)

    def publish(self, engine: Engine, policy: str) -> list[str] | None:
        """End the run of an open epoch: publish it, or what the policy leaves of it.

        Returns the tables that were left out; None when nothing was published.
        """
        held: list[str] = []
        with self._lock:
            failed, staged = dict(self._failed), set(self._staged)
        if failed and policy == "run":
            barrier = engine.epochs.leave_staged()
            names = ", ".join(sorted(node.split(".")[2] for node in failed))
            logger.warning(
                f"Nothing from this run is published, because these failed: {names}. "
                "`publish: passed_subgraph` publishes everything that depends on no failure"
            )
            self._undo(staged)
            if barrier:
                logger.warning(
                    f"Barrier {barrier} stays staged until the next run. "
                    "To look at it: `dbt show --vars 'consistency: read_uncommitted'`"
                )
            return None
        if failed and policy == "passed_subgraph":
            # A test's failure is that of the nodes that it reads.
            blamed = {node for name in failed for node in self._needs.get(name, (name,))}
            tables = {node: engine.adapter_api.tables_of([node]) for node in staged}
            held = engine.epochs.unstage_models(blamed)
            self._undo({node for node in staged if tables[node] & set(held)})
            if held:
                logger.warning(f"Not published because of failures: {', '.join(held)}")
        report = engine.publish()
        for done in report.sinks.values():
            if done.error is None:
                logger.info(f"Delivered {done.sink} up to barrier {done.barrier}: {done.target}")
        if any(table.mode != "noop" for table in report.tables.values()):
            # Not at the top: the adapter is there before Spark is.
            from dbt_streamsql.runtime.report import summary

            logger.info(f"Published barrier {report.barrier}: {summary(report)}")
        return held

    def _undo(self, nodes: set[str]) -> None:
        self._undone = nodes
        if nodes:
            names = ", ".join(sorted(node.split(".")[2] for node in nodes))
            logger.warning(f"`dbt retry` rebuilds these in addition to what failed: {names}")

    def _have_retried(self, results: Path) -> None:
        """Make `dbt retry` run what was undone and what has read it, besides what failed.

        It runs what was skipped, according to dbt's `run_results.json`.
        """
        told = json.loads(results.read_text(encoding="utf-8"))
        passed = {each["unique_id"]: each for each in told["results"]}
        passed = {name: each for name, each in passed.items() if each["status"] in _PASSED}
        again = self._undone & passed.keys()
        while more := {
            name for name in passed.keys() - again if again.intersection(self._needs_of(name))
        }:
            again |= more
        for name in again:
            found = passed[name]
            found["message"] = f"not published because the run failed; was: {found['message']}"
            found["status"] = "skipped"
        beside = results.with_suffix(".json.new")
        beside.write_text(json.dumps(told), encoding="utf-8")
        beside.replace(results)


def check_policy(policy: object) -> str:
    """Check the policy's name. Error: CONFIG_INVALID."""
    if policy not in POLICIES:
        raise StreamSqlError(
            "CONFIG_INVALID", "unknown `publish`", given=repr(policy), allowed=", ".join(POLICIES)
        )
    return str(policy)
