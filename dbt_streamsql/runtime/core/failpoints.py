"""Every durable effect of an epoch has a name and passes here: tests stop a process at it.

The names are in the order in which an epoch, or the build of a plain table, reaches them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

GC_STEPS: dict[str, str] = {
    "sweep.orphans": "files in a view's folder that nothing names go",
}
"""What only `streamsql gc` does; its other steps are those of an epoch's end."""

STAGED_STEPS: dict[str, str] = {
    "staged.record": "MetaService learns what will be staged, and by whom",
    "staged.begin": "the rows of a plain table are written where no query reads",
    "staged.commit": "a plain table appears, or takes the place of the old one",
    "staged.abort": "what was staged for a plain table is removed",
    "staged.forget": "MetaService forgets it",
}
"""Plain tables are published one by one, apart from barriers."""

DROP_STEPS: dict[str, str] = {
    "view.drop": "the table of a view that is dropped goes",
    "view.forget": "MetaService forgets the view",
}
"""In this order, so that a drop whose process died can be repeated."""

REVISION_STEPS: dict[str, str] = {
    "revise.write": "the correction of an outside table is written where no query reads",
    "revise.publish": "the correction becomes visible",
}
"""Before the epoch in which the views of the table follow."""

STEPS: dict[str, str] = {
    "barrier.begin": "the barrier gets its number and its inputs",
    "job.stage": "a definition is registered, provisionally",
    "table.build": "a new table is built in the hidden schema",
    "branch.create": "a branch of an existing table is opened",
    "branch.write": "the change is written on the branch",
    "changes.register": "MetaService learns where the view's own change will be",
    "changes.write": "the view's own change is written for its readers",
    "table.processed": "MetaService learns of the staged version",
    "barrier.precommit": "everything is staged; from here on the barrier rolls forward",
    "publish.table": "a table's version becomes visible",
    "table.written": "MetaService learns that it is visible",
    "barrier.commit": "the barrier is complete",
    "pins.move": "tags follow the snapshots that are still needed",
    "sweep.branch": "a branch that is no longer needed goes",
    "sweep.staging": "a staging table that is no longer needed goes",
    "sweep.changes": "change files that everybody has read go",
    "sweep.changelog": "a changelog table that no view wants any more goes",
    "sweep.state": "a state table that no view reads any more goes",
    "table.compact": "small files of a worn table are merged",
    "ledger.keep": "from here on barriers that are too old cannot be read",
    "table.expire": "versions of a table that only those barriers have go",
    "ledger.forget": "MetaService forgets those barriers",
    "barrier.abort": "an unfinished barrier is given up",
    **GC_STEPS,
    **STAGED_STEPS,
    **DROP_STEPS,
    **REVISION_STEPS,
}

CATALOG_STEPS: dict[str, str] = {
    "publish.together": "the versions of several tables become visible in one commit",
}
"""Of catalogs that have transactions, before the tables are published one by one."""

STREAM_STEPS: dict[str, str] = {
    "stream.record": "MetaService learns how far a stream will be read, before it is",
    "stream.release": "a stream may forget what a published barrier has read",
}
"""Of streaming tables; their other steps are those of views."""

SINK_STEPS: dict[str, str] = {
    "sink.register": "a definition of a sink counts from now on",
    "sink.record": "MetaService learns of a delivery before it is made, unless the target does",
    "sink.write": "the rows are written, if the target can, where no query reads",
    "sink.publish": "all of them are seen at once",
    "sink.delivered": "MetaService learns how far the target has come",
}
"""Of sinks, after the barrier is complete; none of them undoes any of it."""

REBUILD_STEPS: dict[str, str] = {
    "rebuild.publish": "a version becomes visible that others of its barrier have preceded",
    "rebuild.store": "an empty store takes over what the tables record",
}
"""Of `streamsql meta rebuild`, after a store was lost."""

VIEW_STEPS: dict[str, str] = {
    "views.begin": "a schema is to hold published views from now on",
    "views.replace": "a published view can show the newest version",
    "views.move": "all published views show the newest barrier",
    "views.drop": "a published view goes whose table is no maintained view any more",
    "views.end": "a schema holds published views no longer",
}
"""Of the SQL views that are kept for readers without an engine, if there are any."""

_ALL = (STEPS, CATALOG_STEPS, STREAM_STEPS, SINK_STEPS, REBUILD_STEPS, VIEW_STEPS)

Moment = Literal["before", "after"]
Observer = Callable[[str, Moment], None]
observers: list[Observer] = []
"""Called around each durable effect; empty outside tests and tools."""


@contextmanager
def failpoint(step: str) -> Iterator[None]:
    """Run one durable effect under its name."""
    if not any(step in known for known in _ALL):
        raise ValueError(f"unnamed durable step {step!r}")
    for observer in observers:
        observer(step, "before")
    yield
    for observer in observers:
        observer(step, "after")
