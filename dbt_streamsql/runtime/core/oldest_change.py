"""When the changes that a view consumes were made: the commit time of the oldest, by root."""

from __future__ import annotations

from collections.abc import Mapping

from dbt_streamsql.meta import NOOP, TableVersion
from dbt_streamsql.meta.inspect.history import OLDEST_CHANGE
from dbt_streamsql.runtime.core.epoch_state import EpochState, Version


def oldest_changes(
    epoch: EpochState, inputs: Mapping[str, Version], previous: TableVersion | None
) -> dict[str, float]:
    """Root -> seconds since 1970. Roots without changes, or whose past is gone, are left out.

    Through views of the same epoch too; MetaService knows what those consumed in earlier ones.
    """
    found: dict[str, float] = {}
    if previous is None:
        return found
    for source, at in inputs.items():
        before = previous.inputs.get(source)
        if source not in previous.inputs or before == at.snapshot:
            continue
        with epoch.lock:
            done = epoch.done.get(source)
        if done is not None and done.mode != NOOP:
            for root, made in done.stats.get(OLDEST_CHANGE, {}).items():
                found[root] = min(made, found.get(root, made))
        elif source not in epoch.jobs:
            path = at.meta.lineage(at.snapshot, before) or []
            # A compaction changes no rows.
            made_at = [
                s.committed / 1000 for s in path if s.operation != "replace" and s.committed
            ]
            if made_at:
                found[source] = min(made_at[0], found.get(source, made_at[0]))
    return found
