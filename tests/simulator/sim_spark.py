"""The part of Spark and Iceberg that the protocol uses, over the simulated storage.

The product's own `staging`, `refs`, `pins`, `metadata`'s records and `changes.classify` run on it
unchanged: it understands their statements, and stands in for Iceberg's Java objects.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

from dbt_streamsql.quoting import TableName
from tests.oracle.zset import ZSet, add
from tests.simulator.sim_lake import KINDS, MAIN, Lake, LakeError, difference, forward, query
from tests.simulator.sim_process import Process
from tests.support.product import Metadata, Usage

_NAME = r"((?:`[^`]+`\.?){3})"
_BRANCH = re.compile(
    rf"INSERT (INTO|OVERWRITE) {_NAME}\.`branch_(\w+)`.*? FROM \((.*)\)$", re.DOTALL
)
_READ = re.compile(rf"{_NAME} VERSION AS OF (\d+)")
_CREATE = re.compile(rf"CREATE TABLE {_NAME} .*? AS (.*)$", re.DOTALL)
_REPLACE = re.compile(rf"CREATE OR REPLACE TABLE {_NAME} .* AS SELECT \* FROM {_NAME}$")
_RENAME = re.compile(rf"ALTER TABLE {_NAME} RENAME TO `(\w+)`\.`(\w+)`")
_TEXT = r"'((?:[^'\\]|\\.)*)'"
_PAIR = re.compile(f"{_TEXT} = {_TEXT}", re.DOTALL)
_TABLE = re.compile(f"table => {_TEXT}")
_REF = re.compile(
    rf"ALTER TABLE {_NAME} CREATE OR REPLACE (?:BRANCH|TAG) `(\w+)` AS OF VERSION (\d+)"
)
_UNREF = re.compile(rf"ALTER TABLE {_NAME} DROP (?:BRANCH|TAG) IF EXISTS `(\w+)`")
_VIEW = re.compile(r"(\w+)\((.*)\)", re.DOTALL)
_PROPERTY = "spark.sql.iceberg.snapshot-property."
_SET = re.compile(rf"ALTER TABLE {_NAME} (?:UN)?SET TBLPROPERTIES")


def parsed(sql: str) -> TableName:
    return TableName.parse(sql.replace("`", ""))


class Rows(list[Any]):
    """What `spark.sql` answers."""

    def collect(self) -> Rows:
        return self


class Frame:
    """The rows of a temporary view, which a Spark job can write to files."""

    def __init__(self, spark: SimulatedSpark, rows: ZSet) -> None:
        self.spark, self.rows, self.write = spark, rows, self

    def coalesce(self, _: int) -> Frame:
        return self

    def parquet(self, folder: str) -> None:
        write = self.spark.lake.write_file
        # Between the two a file is there that lacks its end.
        self.spark.do(f"begin {folder}", lambda: write(folder, {}, torn=True))
        self.spark.do(f"write {folder}", lambda: write(folder, self.rows))


class Settings(dict[str, str]):
    """`spark.conf`."""

    def set(self, key: str, value: str) -> None:
        self[key] = value

    def unset(self, key: str) -> None:
        self.pop(key, None)


class SimulatedSpark:
    """A session of one process."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.lake: Lake = process.simulation.lake
        kind = "rest" if process.simulation.rest else "jdbc"
        self.conf = Settings({"spark.sql.catalog.lake.type": kind})
        self.views: dict[str, ZSet] = {}

    @property
    def stamp(self) -> dict[str, str]:
        """The properties of the snapshots that are written now."""
        return {
            key.removeprefix(_PROPERTY): value
            for key, value in self.conf.items()
            if key.startswith(_PROPERTY)
        }

    def do(self, what: str, action: Callable[[], Any]) -> Any:
        return self.process.do(what, action)

    def table(self, name: str) -> Any:
        columns = self.lake.table(parsed(name)).columns
        kind = SimpleNamespace(simpleString=lambda: "bigint")
        return SimpleNamespace(schema=[SimpleNamespace(name=c, dataType=kind) for c in columns])

    def sql(self, text: str) -> Any:
        """Carry out one statement, which is one effect; a query has none."""
        if text.startswith("SELECT "):
            return Frame(self, self.views[text.rpartition(" FROM ")[2]])
        words = " ".join(text.split(maxsplit=3)[:3])
        for start, action in _STATEMENTS:
            if words.startswith(start):
                return Rows(action(self, text) or ())
        raise AssertionError(f"a statement that is not simulated: {text}")

    def evaluate(self, text: str) -> ZSet:
        """The rows of a view's text over versions of its sources."""
        found = _VIEW.search(text)
        assert found is not None, text
        sources = [self._source(part) for part in found[2].split("; ")]
        return query(found[1], sources)

    def _source(self, text: str) -> ZSet:
        found = _READ.search(text)
        return self.lake.rows(parsed(found[1]), int(found[2])) if found else {}


# -- statements -------------------------------------------------------------------------------


def _read(literal: str) -> str:
    """What Spark reads from the inside of a literal, as the product writes them."""
    return re.sub(r"\\(u0024|.)", lambda m: "$" if m[1] == "u0024" else m[1], literal)


def _kept(text: str) -> dict[str, str]:
    """The table properties of a statement, by name."""
    return {_read(key): _read(value) for key, value in _PAIR.findall(text)}


def _properties(spark: SimulatedSpark, text: str) -> None:
    found = _SET.match(text)
    assert found is not None
    name = parsed(found[1])
    gone = re.findall(_TEXT, text) if " UNSET " in found[0] else ()
    new: dict[str, str | None] = {**_kept(text), **dict.fromkeys(map(_read, gone))}
    spark.do(f"properties of {name}", lambda: spark.lake.set_properties(name, new))


def _drop(spark: SimulatedSpark, text: str) -> None:
    name = parsed(text.removeprefix("DROP TABLE IF EXISTS ").removesuffix(" PURGE"))
    # A statement that finds nothing to do has no effect that could be half done.
    if str(name) in spark.lake.tables:
        spark.do(f"drop {name}", lambda: spark.lake.drop(name))


def _create(spark: SimulatedSpark, text: str) -> None:
    found = _CREATE.match(text)
    assert found is not None
    kept = _kept(text)
    name, rows = parsed(found[1]), spark.evaluate(found[2])
    view = _VIEW.search(found[2])
    columns = KINDS[view[1]][1] if view is not None else ()
    spark.do(f"create {name}", lambda: spark.lake.create(name, columns, rows, spark.stamp, kept))


def _replace(spark: SimulatedSpark, text: str) -> None:
    found = _REPLACE.match(text)
    assert found is not None
    kept = _kept(text)
    name, staged = parsed(found[1]), spark.lake.table(parsed(found[2]))
    rows = spark.lake.archive[staged.meta.current or 0]
    spark.do(
        f"replace {name}",
        lambda: spark.lake.replace(name, staged.columns, rows, spark.stamp, kept),
    )


def _rename(spark: SimulatedSpark, text: str) -> None:
    found = _RENAME.match(text)
    assert found is not None
    name = parsed(found[1])
    to = TableName(name.catalog, found[2], found[3])
    spark.do(f"rename {name} to {to}", lambda: spark.lake.rename(name, to))


def _insert(spark: SimulatedSpark, text: str) -> None:
    found = _BRANCH.match(text)
    assert found is not None, text
    name, branch, rows = parsed(found[2]), found[3], spark.evaluate(found[4])
    write_branch(spark, name, branch, rows, "overwrite")


def write_branch(
    spark: SimulatedSpark, name: TableName, branch: str, rows: ZSet, operation: str
) -> None:
    """A new head of a branch that is there."""
    refs = spark.lake.table(name).meta.refs
    if branch not in refs:
        raise LakeError(f"Ref does not exist: {branch}")
    commit = spark.lake.commit
    spark.do(
        f"write {name} on {branch}",
        lambda: commit(name, branch, refs[branch], rows, operation, spark.stamp),
    )


def _ref(spark: SimulatedSpark, text: str) -> None:
    found = _REF.match(text) or _UNREF.match(text)
    assert found is not None, text
    change = JavaTable(spark, parsed(found[1])).manageSnapshots()
    at = int(found[3]) if found.re is _REF else None
    change.set(found[2], at)
    change.commit()


def _call(spark: SimulatedSpark, text: str) -> None:
    table = _TABLE.search(text)
    assert table is not None, text
    name = parsed("lake." + _read(table[1]))
    if "fast_forward" in text:
        change = JavaTable(spark, name).manageSnapshots()
        (branch,) = re.findall(f" to => {_TEXT}", text)
        change.fastForwardBranch(MAIN, _read(branch))
        change.commit()
    elif "set_current_snapshot" in text:
        (at,) = map(int, re.findall(r"(\d+)L", text))
        if at not in spark.lake.table(name).meta.snapshots:
            raise LakeError(f"Cannot find snapshot {at}")
        spark.do(f"set {name} to {at}", lambda: spark.lake.move(name, lambda *_: at))
    elif "expire_snapshots" in text:
        ids = [int(number) for number in re.findall(r"(\d+)L", text)]
        spark.do(f"expire {ids} of {name}", lambda: spark.lake.forget(name, ids))
    else:
        assert "rewrite_data_files" in text, text
        read = spark.lake.table(name).meta.current
        spark.do(f"compact {name}", lambda: spark.lake.compact(name, read))


def _namespaces(spark: SimulatedSpark, _: str) -> list[Any]:
    return [{"namespace": name} for name in {n.split(".")[1] for n in spark.lake.tables}]


def _tables(spark: SimulatedSpark, text: str) -> list[Any]:
    schema = text.rsplit("`", 2)[1]
    names = (TableName.parse(name) for name in spark.lake.tables)
    return [{"tableName": name.table} for name in names if name.schema == schema]


def _altered(text: str) -> Callable[..., None]:
    if " TBLPROPERTIES " in text:
        return _properties
    return _rename if " RENAME TO " in text else _ref


_STATEMENTS: tuple[tuple[str, Callable[..., Any]], ...] = (
    ("INSERT", _insert),
    ("DROP TABLE", _drop),
    ("CREATE TABLE", _create),
    ("CREATE OR REPLACE", _replace),
    ("CALL", _call),
    ("SHOW NAMESPACES", _namespaces),
    ("SHOW TABLES", _tables),
    (
        "ALTER TABLE",
        lambda spark, text: _altered(text)(spark, text),
    ),
)


# -- Iceberg's Java objects -------------------------------------------------------------------


class JavaTable:
    """`org.apache.iceberg.Table`, as far as branches, tags and expiry go."""

    def __init__(self, spark: Any, name: TableName) -> None:
        self.spark, self.name = spark, name
        spark.lake.table(name)

    def refs(self) -> Any:
        refs = self.spark.lake.table(self.name).meta.refs
        return SimpleNamespace(containsKey=refs.__contains__)

    def manageSnapshots(self) -> ManageSnapshots:  # noqa: N802 - Iceberg's own name
        return ManageSnapshots(self)


class ManageSnapshots:
    """All moves are checked and carried out by `commit`, together or not at all."""

    def __init__(self, table: JavaTable) -> None:
        self.table = table
        self.moves: list[Callable[[Metadata, dict[str, int]], int | None]] = []
        self.words: list[str] = []

    def set(self, ref: str, at: int | None, *, new: bool = False, known: bool = False) -> Any:
        """Put a ref somewhere (None: drop it)."""

        def change(meta: Metadata, refs: dict[str, int]) -> None:
            if (new and ref in refs) or (known and ref not in refs):
                raise LakeError(f"Ref {ref} {'exists' if new else 'does not exist'}")
            if at is not None and at not in meta.snapshots:
                raise LakeError(f"Cannot set {ref} to unknown snapshot: {at}")
            if at is None:
                refs.pop(ref, None)
            else:
                refs[ref] = at

        self.moves.append(change)
        self.words.append(f"{ref} to {at}" if at is not None else f"drop {ref}")
        return self

    def createBranch(self, name: str, at: int) -> Any:  # noqa: N802
        return self.set(name, at, new=True)

    def replaceBranch(self, name: str, at: int) -> Any:  # noqa: N802
        return self.set(name, at, known=True)

    def createTag(self, name: str, at: int) -> Any:  # noqa: N802
        return self.set(name, at, new=True)

    def removeBranch(self, name: str) -> Any:  # noqa: N802
        return self.set(name, None, known=True)

    def removeTag(self, name: str) -> Any:  # noqa: N802
        return self.set(name, None, known=True)

    def fastForwardBranch(self, _: str, to: str) -> Any:  # noqa: N802
        self.moves.append(lambda meta, refs: forward(meta, refs, to))
        self.words.append(f"forward to {to}")
        return self

    def change(self, meta: Metadata, refs: dict[str, int]) -> int | None:
        """Carry out the moves on some refs; where main is after them."""
        current = meta.current
        for move in self.moves:
            moved = move(meta, refs)
            current = moved if moved is not None else current
        return current

    @property
    def what(self) -> str:
        return f"refs of {self.table.name}: {', '.join(self.words)}"

    def commit(self) -> None:
        name, lake = self.table.name, self.table.spark.lake
        self.table.spark.do(self.what, lambda: lake.move(name, self.change))


def commit_together(spark: Any, changes: Sequence[ManageSnapshots]) -> None:
    """All of them in one commit, unless a table has moved since it was looked at."""
    seen = {change.table.name: spark.lake.table(change.table.name).meta for change in changes}
    for change in changes:
        change.change(seen[change.table.name], dict(seen[change.table.name].refs))

    def apply() -> None:
        for name, meta in seen.items():
            now = spark.lake.table(name).meta
            if (now.current, now.refs) != (meta.current, meta.refs):
                raise LakeError("CommitFailedException: Requirement failed: ref has changed")
        for change in changes:
            spark.lake.move(change.table.name, change.change)

    spark.do("; ".join(change.what for change in changes), apply)


class JobCount:
    """One job a view."""

    @staticmethod
    def stop() -> Usage:
        return Usage(1, 0, {})


class Sessions:
    """`runtime.sessions.Sessions`: each job has a session, so that settings are its own."""

    def __init__(self, process: Process) -> None:
        self.main = SimulatedSpark(process)

    @contextmanager
    def use(self) -> Iterator[SimulatedSpark]:
        yield SimulatedSpark(self.main.process)

    @staticmethod
    def job_count(_: SimulatedSpark) -> JobCount:
        return JobCount()


def folder_rows(spark: SimulatedSpark, folders: tuple[str, ...]) -> ZSet:
    return add(spark.lake.read_file(folder) for folder in folders)


def change_of(spark: SimulatedSpark, name: TableName, old: int | None, new: int | None) -> ZSet:
    """What happened between two versions."""
    return difference(spark.lake.rows(name, new), spark.lake.rows(name, old))
