"""Deadlines for calls to a Spark Connect server that no process should wait for.

PySpark gives no call a deadline. A statement may take as long as it takes; but a process that
interrupts one, or releases something, goes on without an answer, and must be able to end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc  # type: ignore[import-untyped]

SECONDS = {"Interrupt": 30.0, "ReleaseExecute": 30.0, "ReleaseSession": 30.0}
"""By the name of the call. Other calls have none."""


class Deadlines(grpc.UnaryUnaryClientInterceptor):  # type: ignore[misc] # untyped
    """Sets the deadlines of calls; one that exceeds its deadline fails with DEADLINE_EXCEEDED."""

    def intercept_unary_unary(
        self, continuation: Callable[[Any, Any], Any], client_call_details: Any, request: Any
    ) -> Any:
        seconds = SECONDS.get(client_call_details.method.rpartition("/")[2])
        if seconds is not None and client_call_details.timeout is None:
            client_call_details = client_call_details._replace(timeout=seconds)
        return continuation(client_call_details, request)
