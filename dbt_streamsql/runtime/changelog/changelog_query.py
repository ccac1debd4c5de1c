"""The changes of a view between two barriers, as a stream of messages.

With `R[t]` the view at barrier t, the changes in (from, to] turn `R[from]` into `R[to]`, exactly:

    retract  R[to] = R[from] - rows with `-` + rows with `+`                 (redo and undo)
    upsert   by key: `-` removes the row, `+` and `*` set the new row        (redo)
    append   R[to] = R[from] + rows                                          (redo, no removals)

They are read from the table's own snapshots: MetaService knows which one belongs to which barrier.
The change files of views (`feed`) are not read here: they are deleted as soon as all views have
read them, and a DataFrame is computed later than it is created.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import SparkSession

from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.meta import Job, TableVersion
from dbt_streamsql.meta.model import stored_definition
from dbt_streamsql.meta.model.stored_definition import plan_of
from dbt_streamsql.plan.algebra import likeness
from dbt_streamsql.plan.algebra.schema import HIDDEN_PREFIX, WEIGHT, Column
from dbt_streamsql.quoting import TableName, quote
from dbt_streamsql.runtime.core.epoch_state import Warehouse, registered
from dbt_streamsql.storage.columns import type_text
from dbt_streamsql.storage.iceberg import metadata
from dbt_streamsql.storage.iceberg.access import NewerRows
from dbt_streamsql.storage.iceberg.metadata import Metadata
from dbt_streamsql.storage.iceberg.scans import changes
from dbt_streamsql.storage.inputs import inputs

MODES = ("retract", "upsert", "append")
BARRIER = "_barrier"
"""The column with the number of the barrier at which the change became visible."""
OPERATION = "_op"
"""The column with the kind of change: `+` a row was added, `-` one was removed, `*` the new row of
a key.

In descending order a row is removed before its replacement is added: `-`, `+`, `*`."""


def query(
    warehouse: Warehouse, table: TableName, after: int, upto: int | None, mode: str = "retract"
) -> str:
    """The changes of a view after one barrier up to another (None: the last), as a query.

    Columns: those of the view, `_barrier` and `_op`.
    Errors: DEFINITION_MISSING, CONFIG_INVALID, CHANGELOG_UNAVAILABLE, CHANGELOG_MODE,
    RESERVED_NAME.
    """
    job = registered(warehouse.store.jobs(), str(table))
    if mode not in MODES:
        allowed = ", ".join(MODES)
        raise StreamSqlError(
            "CONFIG_INVALID", "unknown changelog mode", given=repr(mode), allowed=allowed
        )
    check_columns(job)
    key = _key(job) if mode == "upsert" else ()
    found = _History(warehouse, job).signed(after, upto)
    if mode == "append":
        _check_append(warehouse.sessions.main, job, found)
    return (
        _by_key(found.sql, job, key)
        if mode == "upsert"
        else as_redo_undo_rows(found.sql, names_of(job))
    )


def as_redo_undo_rows(signed: str, columns: Sequence[str]) -> str:
    """A query of redo and undo rows: one for each copy of the `signed` rows with a barrier."""
    names = ", ".join(quote(column) for column in columns)
    copies = f"array_repeat(IF({WEIGHT} > 0, '+', '-'), CAST(abs({WEIGHT}) AS INT))"
    return f"SELECT {names}, {BARRIER}, explode({copies}) AS {OPERATION} FROM {signed}"


def names_of(job: Job) -> tuple[str, ...]:
    """The visible columns of a view."""
    return tuple(column["name"] for column in job.columns)


def columns_of(job: Job) -> list[Column]:
    """The visible columns of a view with their types."""
    return list(stored_definition.columns_of(job.columns))


def check_columns(job: Job) -> None:
    """RESERVED_NAME when a column of the view has one of our names."""
    for name in names_of(job):
        if name.lower() in (BARRIER, OPERATION):
            raise StreamSqlError(
                "RESERVED_NAME",
                f"{job.table} has a column {name}, which is reserved for its changelog",
                allowed=f"any name but {BARRIER} and {OPERATION}",
                hint="give the column an alias",
            )


def change(
    name: TableName,
    meta: Metadata,
    old: int | None,
    new: int | None,
    job: Job,
    newer: NewerRows | None = None,
) -> str | None:
    """Signed visible rows between two snapshots of a view's table; None when there are none.

    With `newer`, only the files that the change is in are read; it is closed afterwards.
    """
    columns = names_of(job)
    names = ", ".join(quote(column) for column in columns)
    if old is None:
        return f"(SELECT {names}, 1L AS {WEIGHT} FROM {inputs.version(name, new)})"
    found = changes.among_others(meta, inputs.classify(meta, old, new))
    if found.kind == "none" or found.insert_only or _comparable(job):
        files = newer.changed(name, meta, found) if newer is not None else None
        return inputs.read(name, meta, found, columns, files)
    return difference(inputs.version(name, new), inputs.version(name, old), job)


def difference(new: str, old: str, job: Job) -> str:
    """Signed visible rows between two relations."""
    names = ", ".join(quote(column) for column in names_of(job))
    signed = changes.difference(new, old, names)
    # Rows that cannot be compared cannot be summed: then all are removed, and all are added.
    return changes.consolidated(signed, columns_of(job)) if _comparable(job) else f"({signed})"


def same_columns(spark: SparkSession, version: str, job: Job) -> bool:
    """Whether a version of the table has the visible columns that the view has now."""
    schema = spark.sql(f"SELECT * FROM {version}").schema
    stored = {field.name: type_text(field.dataType) for field in schema}
    return all(stored.get(column["name"]) == column["type"] for column in job.columns)


def _comparable(job: Job) -> bool:
    return all(map(likeness.has_likeness, columns_of(job)))


@dataclass(frozen=True)
class _Signed:
    """Signed rows with their barrier, and the versions that they lead to."""

    sql: str
    versions: tuple[TableVersion, ...]


class _History:
    """The versions of one view that can still be read."""

    def __init__(self, warehouse: Warehouse, job: Job) -> None:
        self._spark = warehouse.sessions.main
        self._store = warehouse.store
        self._job = job
        self._name = TableName.parse(job.table)
        self._meta = metadata.load(self._spark, self._name)
        self._versions = self._store.history(job.table)
        self._fits: dict[int, bool] = {}

    def signed(self, after: int, upto: int | None) -> _Signed:
        """The changes in (after, upto]. Error: CHANGELOG_UNAVAILABLE."""
        last = self._store.last_committed()
        upto = last if upto is None else upto
        problem = ""
        if not 0 <= after <= upto:
            problem = "the first barrier must not be after the second"
        elif unknown := [number for number in (after, upto) if not self._committed(number)]:
            old = unknown[0] < self._store.kept_from()
            why = "is no longer kept" if old else "is not committed"
            problem = f"barrier {unknown[0]} {why}"
        else:
            problem = self._gone(after)
        if problem:
            first = self._oldest()
            raise StreamSqlError(
                "CHANGELOG_UNAVAILABLE",
                f"the changes of {self._name} are not available: {problem}",
                given=f"after barrier {after} up to {upto}",
                allowed="nothing: no version of the view can be read"
                if first is None
                else f"committed barriers from {first} to {last}",
            )
        return self._between(after, upto)

    def _between(self, after: int, upto: int) -> _Signed:
        assert self._meta is not None
        parts, versions = [], []
        ours = [version for version in self._versions if version.barrier <= upto][::-1]
        old: int | None = None
        for version in ours:
            rows = None
            if version.barrier > after and version.snapshot != old:
                rows = change(self._name, self._meta, old, version.snapshot, self._job)
            old = version.snapshot
            if rows is not None:
                parts.append(f"SELECT *, {version.barrier}L AS {BARRIER} FROM {rows}")
                versions.append(version)
        if not parts:
            names = ", ".join(quote(name) for name in names_of(self._job))
            newest = inputs.version(self._name, self._versions[0].snapshot)
            parts = [f"SELECT {names}, 1L AS {WEIGHT}, 0L AS {BARRIER} FROM {newest} WHERE false"]
        return _Signed(f"({' UNION ALL '.join(parts)})", tuple(versions))

    def _committed(self, number: int) -> bool:
        if number == 0:
            return True
        found = self._store.barrier(number)
        kept = number >= self._store.kept_from()
        return kept and found is not None and found.state == "COMMIT"

    def _whole(self) -> bool:
        """Whether the first version of the view is known, so that before it there was nothing."""
        return self._store.kept_from() == 0 or self._versions[-1].created

    def _gone(self, after: int) -> str:
        """Why the changes since a barrier are not available; '' when they are."""
        for position, version in enumerate(self._versions):
            if why := self._unreadable(version):
                return why
            if version.barrier <= after:
                return ""
            if version.created and position + 1 < len(self._versions):
                return f"the view was dropped and recreated at barrier {version.barrier}"
        if not self._versions:
            return "the view has no version"
        return "" if self._whole() else "its first versions are no longer kept"

    def _oldest(self) -> int | None:
        oldest = None
        for position, version in enumerate(self._versions):
            if self._unreadable(version):
                break
            oldest = version.barrier
            if position + 1 == len(self._versions) and self._whole():
                oldest = 0
            if version.created:
                break
        # 0 is before the first version, whichever barriers are kept.
        return max(oldest, self._store.kept_from()) if oldest else oldest

    def _unreadable(self, version: TableVersion) -> str:
        known = self._meta.snapshots if self._meta is not None else {}
        snapshot = known.get(version.snapshot) if version.snapshot is not None else None
        if snapshot is None:
            return f"its version at barrier {version.barrier} is gone (expired or dropped)"
        written = snapshot.id if snapshot.schema_id is None else snapshot.schema_id
        if written not in self._fits:
            text = inputs.version(self._name, version.snapshot)
            self._fits[written] = same_columns(self._spark, text, self._job)
        if not self._fits[written]:
            return f"it had different columns at barrier {version.barrier}"
        return ""


def _key(job: Job) -> tuple[str, ...]:
    """The visible columns that identify a row of the view. Error: CHANGELOG_MODE."""
    plan = plan_of(job)
    if plan.strategy not in ("fold", "replace"):
        raise StreamSqlError(
            "CHANGELOG_MODE",
            f"the rows of {job.table} have no key",
            given="mode 'upsert'",
            allowed="a view that is maintained from changes and grouped at its top",
            hint="use mode 'retract'",
        )
    key = plan.key
    if any(name.startswith(HIDDEN_PREFIX) for name in key):
        raise StreamSqlError(
            "CHANGELOG_MODE",
            f"{job.table} does not show the columns that it is grouped by",
            given="mode 'upsert'",
            allowed="a view whose grouping columns are among its columns",
            hint="select the grouping columns, or use mode 'retract'",
        )
    return key


def _by_key(signed: str, job: Job, key: tuple[str, ...]) -> str:
    """One message for each key and barrier: its new row, or that it was removed."""
    came, went = f"{HIDDEN_PREFIX}came", f"{HIDDEN_PREFIX}went"
    by = ", ".join([BARRIER, *(quote(name) for name in key)])
    items = ", ".join(
        quote(name) if name in key else f"IF({WEIGHT} > 0, {quote(name)}, NULL) AS {quote(name)}"
        for name in names_of(job)
    )
    # Only rows of an earlier definition of the view may share a key of this one.
    shared = f"'[STREAMSQL.CHANGELOG_MODE] rows shared a key at barrier ' || {BARRIER}"
    return (
        f"SELECT {items}, {BARRIER}, CASE WHEN {came} > 1 THEN raise_error({shared}) "
        f"WHEN {WEIGHT} < 0 THEN '-' WHEN {went} > 0 THEN '*' ELSE '+' END AS {OPERATION} "
        f"FROM (SELECT *, "
        f"sum(greatest({WEIGHT}, 0)) OVER (PARTITION BY {by}) AS {came}, "
        f"count_if({WEIGHT} < 0) OVER (PARTITION BY {by}) AS {went} FROM {signed}) "
        f"WHERE {WEIGHT} > 0 OR {came} = 0"
    )


def _check_append(spark: SparkSession, job: Job, found: _Signed) -> None:
    """CHANGELOG_MODE when a row was removed."""
    if not any(version.rows_deleted for version in found.versions):
        return
    lost = f"SELECT min({BARRIER}) FROM {found.sql} WHERE {WEIGHT} < 0"
    barrier = spark.sql(lost).collect()[0][0]
    if barrier is not None:
        raise StreamSqlError(
            "CHANGELOG_MODE",
            f"rows of {job.table} were changed or deleted, not only added",
            given=f"mode 'append', and barrier {barrier} removed rows",
            allowed="changes that only add rows",
            hint="use mode 'retract', or 'upsert' where the view has a key",
        )
