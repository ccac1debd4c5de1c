"""A warehouse that can be put back to how it was, processes that die in it, and what may be seen.

Iceberg's metadata holds absolute paths, so a warehouse is always put back to the same folder; the
catalog's file is another one then, so each look at it takes a new session.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame

from dbt_streamsql import Engine
from dbt_streamsql.meta import MetaStore, open_store
from dbt_streamsql.plan.algebra.schema import HIDDEN_PREFIX
from dbt_streamsql.plan.definition.stored_part import is_state_table
from dbt_streamsql.quoting import TableName
from tests.faults import fault_scenario as scenario
from tests.faults.fault_child import FAILED, Orders
from tests.support import patience, spark_child
from tests.support.product import SUFFIX, Metadata, embedded, exists, staged_tables, symbol

load = symbol("load", beside="shape")

CHILD = "tests.faults.fault_child"


@dataclass
class World:
    """`spark` is the session of the test run; `folder` holds the warehouse and its copies."""

    spark: Any
    folder: Path
    before: dict[str, scenario.Rows] = field(default_factory=dict)
    after: dict[str, scenario.Rows] = field(default_factory=dict)

    @property
    def warehouse(self) -> Path:
        return self.disk / "warehouse"

    @property
    def disk(self) -> Path:
        """Where a file system of its own can be mounted, as small or as read-only as one likes."""
        return self.folder / "disk"

    # -- states of the warehouse -------------------------------------------------------------

    def build(self) -> None:
        """Make the shop, with changes that the next epoch will meet, and keep it as `start`."""
        shutil.rmtree(self.warehouse, ignore_errors=True)
        engine = self.engine()
        then, now = scenario.build(engine)
        engine.close()
        self.before = scenario.contents(then, after=False)
        self.after = scenario.contents(now, after=True)
        self.save("start")

    def save(self, name: str) -> None:
        shutil.copytree(self.warehouse, self.folder / name)

    def saved(self, name: str) -> bool:
        return (self.folder / name).is_dir()

    def restore(self, name: str) -> None:
        shutil.rmtree(self.warehouse, ignore_errors=True)
        shutil.copytree(self.folder / name, self.warehouse)

    # -- processes ---------------------------------------------------------------------------

    def engine(self) -> Engine:
        """A runner in this process."""
        return Engine.open(self.warehouse, spark=embedded(str(self.warehouse)))

    def store(self) -> MetaStore:
        return open_store(f"sqlite:///{self.warehouse / 'streamsql.db'}")

    def start(
        self,
        task: str,
        step: str,
        moment: str,
        nth: int = 1,
        *,
        sends: signal.Signals = signal.SIGKILL,
        own_spark: bool = False,
    ) -> subprocess.Popen[bytes]:
        """A process that works until the `nth` passing of a durable step."""
        orders = Orders(
            str(self.warehouse), task, step, moment, nth, int(sends), parallel=own_spark
        )
        environment = spark_child.paths() if own_spark else spark_child.environment(self.spark)
        with self.log.open("wb") as log, self.output.open("wb") as output:
            return subprocess.Popen(
                [sys.executable, "-m", CHILD, orders.to_json()],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=log,
                start_new_session=True,
            )

    def kill(
        self, task: str, step: str, moment: str, nth: int = 1, *, own_spark: bool = False
    ) -> bool:
        """Let a process die at a durable step; False when it ended without passing there."""
        process = self.start(task, step, moment, nth, own_spark=own_spark)
        return self.finish(process, -signal.SIGKILL)

    def finish(self, process: subprocess.Popen[bytes], other: int = FAILED) -> bool:
        """Wait for a process; whether it ended in the other way than by doing its task."""
        code = self.ends(process)
        _end_group(process.pid)
        assert code in (0, other), self.said
        return code != 0

    def ends(self, process: subprocess.Popen[bytes]) -> int:
        """The exit code of a process; it may use the Spark of this one."""
        try:
            return patience.wait(process, os.getpid())
        except patience.Stuck as stuck:
            raise patience.Stuck(f"{stuck}\n{self.said}") from None

    def passings(self, task: str) -> dict[str, int]:
        """How often a process that lives passes `<moment> <step>`."""
        assert not self.kill(task, "", "")
        return self.told().passed

    def told(self) -> Told:
        """What the last process that lived has said about its run."""
        found = json.loads(self.output.read_text())
        trace = [(step, moment) for step, moment in found["trace"]]
        return Told(found["passed"], trace, found["error"])

    @property
    def said(self) -> str:
        return self.log.read_text(errors="replace")[-4000:]

    @property
    def log(self) -> Path:
        return self.folder / "child.log"

    @property
    def output(self) -> Path:
        return self.folder / "child.out"

    # -- what is seen ------------------------------------------------------------------------

    def tables(self) -> dict[str, scenario.Rows]:
        """Every view as somebody sees it who knows nothing of barriers."""
        session = embedded(str(self.warehouse))
        names = {row["tableName"] for row in session.sql("SHOW TABLES IN lake.shop").collect()}
        return {
            name: _rows(session.table(f"{scenario.SCHEMA}.{name}"))
            for name in sorted(names - {"orders", "users"})
            if not name.endswith(SUFFIX) and not is_state_table(name)
        }

    def states(self, engine: Engine) -> set[str]:
        """The state tables that are there."""
        rows = engine.spark.sql(f"SHOW TABLES IN {scenario.SCHEMA}").collect()
        names = {f"{scenario.SCHEMA}.{row['tableName']}" for row in rows}
        return {name for name in names if is_state_table(name)}

    def changelogs(self) -> dict[str, scenario.Rows]:
        """Every view as its changelog adds up to, for those that have one."""
        session = embedded(str(self.warehouse))
        names = {row["tableName"] for row in session.sql("SHOW TABLES IN lake.shop").collect()}
        found = {}
        for name in sorted(name for name in names if name.endswith(SUFFIX)):
            rows: Counter[tuple[Any, ...]] = Counter()
            for row in session.table(f"{scenario.SCHEMA}.{name}").collect():
                rows[tuple(row)[:-2]] += 1 if row["_op"] == "+" else -1
            found[name.removesuffix(SUFFIX)] = rows
        return {
            name: Counter({r: n for r, n in rows.items() if n}) for name, rows in found.items()
        }

    def committed(self, engine: Engine) -> dict[str, scenario.Rows]:
        """Every view at the newest committed barrier."""
        with engine.reader() as reader:
            return self._seen(engine, reader.sql)

    def precommitted(self, engine: Engine) -> dict[str, scenario.Rows]:
        """Every view that was there before, at a barrier that is staged or committed."""
        return self._seen(engine, engine.sql)

    def _seen(self, engine: Engine, sql: Callable[[str], DataFrame]) -> dict[str, scenario.Rows]:
        jobs = engine.store.jobs()
        names = sorted(name.removeprefix(f"{scenario.SCHEMA}.") for name in jobs)
        names = [n for n in names if not is_state_table(n) and exists(engine.spark, _table(n))]
        return {name: _rows(sql(f"SELECT * FROM {scenario.SCHEMA}.{name}")) for name in names}

    def leftovers(self, engine: Engine, *, swept: bool = True) -> list[str]:
        """What an epoch made and nobody needs any more. Until a sweep (not `swept`) a table may
        have one tag of that kind, of the version that was replaced last."""
        found = []
        store = engine.store
        tables = self.metadata(engine)
        needed = _needed(engine, tables)
        staged = staged_tables(engine.spark, engine.catalog)
        found += [f"staging table {name}" for name in staged]
        folders = [table.location.removeprefix("file:") for table in tables.values()]
        for name, table in tables.items():
            pins = {ref for ref in table.refs if ref.startswith("streamsql_pin_")}
            spare = {ref for ref in pins if table.refs[ref] not in needed.get(name, ())}
            allowed = not swept and len(spare) == 1
            left = (table.refs.keys() - pins - {"main"}) | (set() if allowed else spare)
            found += [f"{ref} of {name}" for ref in sorted(left)]
        for file in self.warehouse.rglob("*"):
            inside = any(str(file).startswith(folder + "/") for folder in folders)
            if file.suffix in (".parquet", ".json", ".avro", ".puffin") and not inside:
                found.append(f"file {file.relative_to(self.warehouse)}")
        found += [f"change file of {name}" for name in store.tables_with_change_files()]
        found += [f"barrier {barrier.id} {barrier.state}" for barrier in store.unfinished()]
        if store.fence().owner:
            found.append(f"the fence of {store.fence().owner}")
        return found

    def unpinned(self, engine: Engine) -> list[str]:
        """Snapshots that the next epoch starts from, or a reader, and that an expiry could take
        away."""
        tables = self.metadata(engine)
        return [
            f"snapshot {snapshot} of {name}"
            for name, snapshots in _needed(engine, tables).items()
            for snapshot in snapshots
            if snapshot not in {at for ref, at in tables[name].refs.items() if ref != "main"}
        ]

    def metadata(self, engine: Engine) -> dict[str, Metadata]:
        """The Iceberg metadata of every table of the shop."""
        rows = engine.spark.sql(f"SHOW TABLES IN {scenario.SCHEMA}").collect()
        names = [f"{scenario.SCHEMA}.{row['tableName']}" for row in rows]
        found = {name: load(engine.spark, TableName.parse(name)) for name in names}
        return {name: table for name, table in found.items() if table is not None}

    def fingerprint(self, engine: Engine) -> Any:
        """Everything durable that another recovery could change."""
        tables = {n: (t.uuid, t.current, t.refs) for n, t in self.metadata(engine).items()}
        return tables, self.recorded(engine)

    @staticmethod
    def recorded(engine: Engine) -> Any:
        """What MetaService holds for readers and for the next epoch."""
        store = engine.store
        return store.last_committed(), store.latest_all(), store.jobs(), store.topology()


@dataclass(frozen=True)
class Told:
    """How often a process passed each `<moment> <step>`, in which order, and the error that ended
    it: `code`, `kind` and `text`."""

    passed: dict[str, int]
    trace: list[tuple[str, str]]
    error: dict[str, str] | None


def wait_until_stopped(process: subprocess.Popen[bytes]) -> None:
    """Return when the process has stopped itself; fail when it ended instead."""
    _, status = patience.until(
        lambda: (found := os.waitpid(process.pid, os.WUNTRACED | os.WNOHANG))[0] and found,
        os.getpid(),
    )
    assert os.WIFSTOPPED(status), "the process ended"


def _table(name: str) -> TableName:
    return TableName.parse(f"{scenario.SCHEMA}.{name}")


def _end_group(group: int) -> None:
    """What the dead process had started dies too (its own Spark)."""
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return


def _needed(engine: Engine, tables: dict[str, Metadata]) -> dict[str, set[int | None]]:
    """The snapshots that views were last computed from, by table, and those that views show and
    a compaction has replaced."""
    needed: dict[str, set[int | None]] = {}
    for version in engine.store.latest_all().values():
        for source, snapshot in version.inputs.items():
            needed.setdefault(source, set()).add(snapshot)
        table = tables.get(version.table)
        if table is not None and table.current != version.snapshot:
            needed.setdefault(version.table, set()).add(version.snapshot)
    return needed


def _rows(frame: Any) -> scenario.Rows:
    shown = [name for name in frame.columns if not name.startswith(HIDDEN_PREFIX)]
    return Counter(tuple(row) for row in frame.select(*shown).collect())
