"""The stream that a streaming table takes its records from, as a node of the topology. Pure."""

from __future__ import annotations

from dbt_streamsql.meta.model.records import Job
from dbt_streamsql.meta.model.stored_definition import definition_of

_PLACES = ("topic", "table", "path")
"""Options that identify a stream within its system; the first one present counts."""


def parts(job: Job) -> tuple[str, str] | None:
    """The place of a job's stream, and its name there; None for a view.

    The place is the connector and the connection name in the profile: definitions hold no hosts.
    """
    known = definition_of(job).stream
    if known is None:
        return None
    spec = known["spec"]
    options = spec.get("options") or {}
    name = next((options[key] for key in _PLACES if isinstance(options.get(key), str)), None)
    where, connection = f"{spec.get('connector')}://", known.get("connection") or ""
    return where + connection, str(name or known["name"])


def node(job: Job) -> str:
    """The name of a job's stream in the topology: `kafka://broker/orders`; '' for a view."""
    found = parts(job)
    if found is None:
        return ""
    where, name = found
    return f"{where}{'' if where.endswith('://') or name.startswith('/') else '/'}{name}"
