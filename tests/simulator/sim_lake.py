"""Storage: tables with snapshots, branches and tags, a staging schema, and change files.

Every method is one atomic effect, as one commit of Iceberg or one rename of a file is; what a
statement does besides is made of several of them. Rows are small bags of tuples of integers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from pyspark.errors import PySparkException

from dbt_streamsql.quoting import TableName
from tests.oracle.zset import Row, ZSet, add, subtract
from tests.support.product import STAGING_SCHEMA, Metadata, symbol

Snapshot = symbol("Snapshot", beside="Metadata")

MAIN = "main"
NOTHING: Mapping[str, str] = MappingProxyType({})


class LakeError(PySparkException):
    """What Spark and Iceberg refuse; `condition` as Spark names it."""

    def __init__(self, message: str, condition: str = "") -> None:
        super().__init__(message)
        self.condition = condition

    def getCondition(self) -> str:  # noqa: N802 - Spark's own name
        return self.condition

    def __str__(self) -> str:
        return self.args[0] if self.args else self.condition


@dataclass
class Table:
    """One table now: its columns, its metadata as the product reads it."""

    columns: tuple[str, ...]
    meta: Metadata


@dataclass
class ChangeRows:
    """A change file; `torn`: it was not written to its end."""

    rows: ZSet
    torn: bool = False


@dataclass
class Lake:
    """Everything that is stored. `archive` keeps the rows of every snapshot for the checks, also
    of expired ones; the tables themselves forget them."""

    tables: dict[str, Table] = field(default_factory=dict)
    files: dict[str, ChangeRows] = field(default_factory=dict)
    archive: dict[int, ZSet] = field(default_factory=dict)
    made: int = 0

    # -- reading -----------------------------------------------------------------------------

    def load(self, name: TableName) -> Metadata | None:
        found = self.tables.get(str(name))
        return found.meta if found is not None else None

    def table(self, name: TableName) -> Table:
        found = self.tables.get(str(name))
        if found is None:
            raise LakeError(f"{name} cannot be found", "TABLE_OR_VIEW_NOT_FOUND")
        return found

    def rows(self, name: TableName, snapshot: int | None) -> ZSet:
        """The rows of a version, which must not have expired."""
        known = self.table(name).meta.snapshots
        if snapshot is None:
            return {}
        if snapshot not in known:
            raise LakeError(f"Cannot find snapshot with ID {snapshot} of {name}")
        return self.archive[snapshot]

    def visible(self) -> dict[str, ZSet]:
        """What a reader sees who asks for tables by name: all but what is staged."""
        return {
            name: self.archive[table.meta.current] if table.meta.current is not None else {}
            for name, table in self.tables.items()
            if f".{STAGING_SCHEMA}." not in name
        }

    # -- tables ------------------------------------------------------------------------------

    def create(
        self,
        name: TableName,
        columns: Sequence[str],
        rows: ZSet,
        stamp: Mapping[str, str] = NOTHING,
        properties: Mapping[str, str] = NOTHING,
    ) -> None:
        if str(name) in self.tables:
            raise LakeError(f"{name} exists", "TABLE_OR_VIEW_ALREADY_EXISTS")
        self.made += 1
        empty = Metadata(f"u{self.made}", f"/{self.made}", 3, 0, None, {}, {}, dict(properties))
        self.tables[str(name)] = Table(tuple(columns), empty)
        self.commit(name, MAIN, None, rows, "append", stamp)

    def replace(
        self,
        name: TableName,
        columns: Sequence[str],
        rows: ZSet,
        stamp: Mapping[str, str] = NOTHING,
        properties: Mapping[str, str] = NOTHING,
    ) -> None:
        """CREATE OR REPLACE: other columns, the history and the refs stay."""
        table = self.table(name)
        table.columns = tuple(columns)
        self.commit(name, MAIN, table.meta.current, rows, "overwrite", stamp, orphan=True)
        self.set_properties(name, properties)

    def set_properties(self, name: TableName, new: Mapping[str, str | None]) -> None:
        """Set properties; those without a value go."""
        table = self.table(name)
        kept = {key: value for key, value in table.meta.properties.items() if key not in new}
        kept |= {key: value for key, value in new.items() if value is not None}
        self._swap(table, properties=kept)

    def drop(self, name: TableName) -> None:
        self.tables.pop(str(name), None)

    def rename(self, name: TableName, to: TableName) -> None:
        table = self.table(name)
        if str(to) in self.tables:
            raise LakeError(f"{to} exists", "TABLE_OR_VIEW_ALREADY_EXISTS")
        self.tables[str(to)] = table
        del self.tables[str(name)]

    # -- snapshots and refs ------------------------------------------------------------------

    def commit(
        self,
        name: TableName,
        branch: str,
        parent: int | None,
        rows: ZSet,
        operation: str,
        stamp: Mapping[str, str] = NOTHING,
        *,
        orphan: bool = False,
    ) -> int:
        """A new snapshot at the head of a branch, which is made when it is not there."""
        self.made += 1
        table = self.table(name)
        meta = table.meta
        before = meta.snapshots.get(parent) if parent is not None else None
        worn = before.count("total-data-files") if before is not None else 0
        fresh = operation in ("overwrite", "replace")
        live = sum(rows.values())
        summary = {
            "total-records": str(live),
            "total-files-size": "1",
            "total-data-files": "1" if fresh else str(worn + 1),
            "added-records": str(live),
        }
        summary |= stamp
        kind = "overwrite" if operation == "delta" else operation
        before_it = None if orphan else parent
        made = Snapshot(self.made, before_it, self.made, kind, summary, True, self.made)
        self.archive[made.id] = rows
        self._swap(
            table,
            current=made.id if branch == MAIN else meta.current,
            snapshots={**meta.snapshots, made.id: made},
            refs=meta.refs if branch == MAIN else {**meta.refs, branch: made.id},
        )
        return made.id

    def compact(self, name: TableName, read: int | None) -> None:
        """Rewrite what was read into the newest version; refused, as Iceberg does, when the files
        that were read have lost rows since or are not there any more."""
        meta = self.table(name).meta
        since = meta.lineage(meta.current, read)
        if since is None or any(snapshot.operation != "append" for snapshot in since):
            raise LakeError("Cannot commit, found new delete for replaced data file")
        self.commit(name, MAIN, meta.current, self.archive[meta.current or 0], "replace")

    def move(
        self, name: TableName, change: Callable[[Metadata, dict[str, int]], int | None]
    ) -> None:
        """All refs of a table in one commit; `change` edits them and gives the new main."""
        table = self.table(name)
        refs = dict(table.meta.refs)
        current = change(table.meta, refs)
        self._swap(table, current=current, refs=refs)

    def expire(self, name: TableName, keep: int, before: int) -> None:
        """Forget the snapshots of before that time which no ref needs, but the newest of main."""
        table = self.table(name)
        meta = table.meta
        kept = {s.id for s in meta.snapshots.values() if s.committed >= before}
        kept |= set(meta.refs.values())
        at = meta.current
        while at is not None and keep > 0 and at in meta.snapshots:
            kept.add(at)
            at, keep = meta.snapshots[at].parent, keep - 1
        snapshots = {id_: found for id_, found in meta.snapshots.items() if id_ in kept}
        self._swap(table, snapshots=snapshots)

    def forget(self, name: TableName, snapshots: Sequence[int]) -> None:
        """Forget just these snapshots; refused when a ref or main still needs one."""
        meta = self.table(name).meta
        if needed := {*meta.refs.values(), meta.current}.intersection(snapshots):
            raise LakeError(f"Cannot expire {needed}. Still referenced by refs")
        kept = {id_: found for id_, found in meta.snapshots.items() if id_ not in snapshots}
        self._swap(self.table(name), snapshots=kept)

    @staticmethod
    def _swap(table: Table, **parts: object) -> None:
        table.meta = replace(table.meta, **parts)

    # -- change files ------------------------------------------------------------------------

    def write_file(self, path: str, rows: ZSet, *, torn: bool = False) -> None:
        self.files[path] = ChangeRows(rows, torn)

    def read_file(self, path: str) -> ZSet:
        found = self.files.get(path)
        if found is None:
            raise LakeError(f"Path does not exist: {path}", "PATH_NOT_FOUND")
        if found.torn:
            raise LakeError(f"{path} is not a Parquet file", "FAILED_READ_FILE")
        return found.rows

    def delete_file(self, path: str) -> None:
        self.files.pop(path, None)


def ancestor(meta: Metadata, old: int | None, new: int | None) -> bool:
    return meta.lineage(new, old) is not None


def forward(meta: Metadata, refs: Mapping[str, int], branch: str) -> int:
    """Where main is after a fast-forward to a branch."""
    if branch not in refs:
        raise LakeError(f"Ref does not exist: {branch}")
    if not ancestor(meta, meta.current, refs[branch]):
        raise LakeError(f"Cannot fast-forward: {MAIN} is not an ancestor of {branch}")
    return refs[branch]


# -- views: real functions of their sources ---------------------------------------------------


def _grouped(rows: ZSet, of: Callable[[int, int], int]) -> ZSet:
    groups: dict[int, int] = {}
    for row, weight in rows.items():
        groups[row[0]] = groups.get(row[0], 0) + of(row[-1], weight)
    return dict.fromkeys(groups.items(), 1)


def _joined(left: ZSet, right: ZSet) -> ZSet:
    return add(
        {(mine[0], mine[-1] + other[-1]): weight * times}
        for mine, weight in left.items()
        for other, times in right.items()
        if mine[0] == other[0]
    )


def _keys(rows: ZSet) -> ZSet:
    return add({(row[0],): weight} for row, weight in rows.items())


def _doubled(rows: ZSet) -> ZSet:
    return add({(row[0], row[-1], 2 * row[-1]): weight} for row, weight in rows.items())


KINDS: Mapping[str, tuple[int, tuple[str, ...], Callable[..., ZSet]]] = {
    "picked": (1, ("k", "v"), lambda a: {r: w for r, w in a.items() if r[-1] % 3}),
    "counted": (1, ("k", "v"), lambda a: _grouped(a, lambda _, weight: weight)),
    "summed": (1, ("k", "v"), lambda a: _grouped(a, lambda value, weight: value * weight)),
    "keys": (1, ("k",), _keys),
    "doubled": (1, ("k", "v", "w"), _doubled),
    "joined": (2, ("k", "v"), _joined),
    "united": (2, ("k", "v"), lambda a, b: add(({(r[0], r[-1]): w} for r, w in _both(a, b)))),
}
"""A view's kind: how many sources it has, its columns, and its rows."""


def _both(left: ZSet, right: ZSet) -> list[tuple[Row, int]]:
    return [*left.items(), *right.items()]


def query(kind: str, inputs: Sequence[ZSet]) -> ZSet:
    return KINDS[kind][2](*inputs)


def difference(new: ZSet, old: ZSet) -> ZSet:
    return subtract(new, old)
