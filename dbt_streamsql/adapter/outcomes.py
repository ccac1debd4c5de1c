"""What became of the nodes of one dbt command: whether, and what of it, may be published."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import Any

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
        if status in _FAILED:
            with self._lock:
                self._failed[message.data.node_info.unique_id] = status

    def tests(self, test: str, nodes: Iterable[str]) -> None:
        """A data test looks at these nodes: its failure is theirs."""
        with self._lock:
            self._needs[test] = tuple(nodes)

    def failed(self) -> Mapping[str, str]:
        """Nodes that failed, and how; tests too."""
        with self._lock:
            return dict(self._failed)

    def blamed(self) -> set[str]:
        """The same, with the nodes that failed tests look at in the place of the tests."""
        with self._lock:
            return {node for test in self._failed for node in self._needs.get(test, (test,))}
