"""The provenance of a snapshot: its barrier, its inputs, and its plan.

MetaService's store has the same data. If the store is lost, it is rebuilt from this.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

BARRIER_PROPERTY = "streamsql.barrier"
VERSION_PROPERTY = "streamsql.version"
"""One property for everything else: over Spark Connect each property costs a call."""


@dataclass(frozen=True)
class Provenance:
    """The origin of a snapshot.

    `inputs` are the snapshots that it was computed from, by table; None when unknown (an
    earlier version wrote it). `plan` is the fingerprint of the definition, and `definition` its
    text (see `runtime/core/definition_property.py`), where the table's property may still be that
    of an earlier one. For a table that replaced another, `staged` is the snapshot of the
    staging table that it copies, and `replaces` the one that the old table had. `position`: how
    far a streaming table has read its stream, `event_time` its event-time progress.
    """

    barrier: int
    inputs: Mapping[str, int | None] | None = field(default_factory=dict)
    plan: str = ""
    definition: str = ""
    staged: int | None = None
    replaces: int | None = None
    position: Mapping[str, Any] | None = None
    event_time: Mapping[str, Any] | None = None

    def properties(self) -> dict[str, str]:
        """The snapshot properties with this data."""
        told = {key: value for key, value in vars(self).items() if value not in (None, "")}
        told.pop("barrier")
        told["inputs"] = dict(self.inputs) if self.inputs is not None else None
        text = json.dumps(told, sort_keys=True)
        return {BARRIER_PROPERTY: str(self.barrier), VERSION_PROPERTY: text}


def read(summary: Mapping[str, str]) -> Provenance | None:
    """The stamp of a snapshot; None when no barrier wrote it."""
    barrier = summary.get(BARRIER_PROPERTY, "")
    if not barrier.isdigit():
        return None
    told = json.loads(summary.get(VERSION_PROPERTY, '{"inputs": null}'))
    return Provenance(int(barrier), **told)
