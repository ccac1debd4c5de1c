"""The stream that a streaming table takes its records from, as a node of the topology. Pure."""

from __future__ import annotations

from typing import Any

from dbt_streamsql.meta.model.records import Job

_PLACES = ("topic", "table", "path")
"""Options that say which of a system's streams it is; the first one that there is counts."""


def parts(job: Job) -> tuple[str, str] | None:
    """Where the stream of a job is, and its name there; None for a view.

    The place is the connector, and the name of the connection that the profile has: hosts are no
    part of a definition.
    """
    known: dict[str, Any] | None = job.config.get("stream")
    if not known:
        return None
    spec = known["spec"]
    options = spec.get("options") or {}
    name = next((options[key] for key in _PLACES if isinstance(options.get(key), str)), None)
    where, connection = f"{spec.get('connector')}://", known.get("connection") or ""
    return where + connection, str(name or known["name"])


def node(job: Job) -> str:
    """What the topology calls the stream of a job: `kafka://broker/orders`; '' for a view."""
    found = parts(job)
    if found is None:
        return ""
    where, name = found
    return f"{where}{'' if where.endswith('://') or name.startswith('/') else '/'}{name}"
