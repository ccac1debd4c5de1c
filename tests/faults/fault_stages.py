"""The scenarios made ready, and what must hold of a warehouse at each of their stages."""

from __future__ import annotations

import re
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from dbt_streamsql import Engine
from dbt_streamsql.plan.definition.stored_part import is_state_table
from dbt_streamsql.quoting import TableName
from tests.faults import fault_scenario as shop
from tests.faults.fault_scenarios import DECISIVE, SCENARIOS, Queries, Scenario
from tests.faults.fault_world import World
from tests.support.product import STAGING_SCHEMA, exists

Contents = dict[str, shop.Rows]
Passing = tuple[str, str]
NEVER_LISTED = re.compile(rf"file (?:{STAGING_SCHEMA}|shop/\w+-[0-9a-f]{{8}})/")
"""Files of a table that was to appear."""


@dataclass
class Ready:
    """A scenario whose start is saved: the tables at each stage, the stage that it begins at, the
    steps that a process passes when nothing happens, and the bytes that it then takes."""

    scenario: Scenario
    contents: list[Contents]
    begun: int = 0
    trace: list[Passing] = field(default_factory=list)
    taken: int = 0

    def stage_after(self, passed: Sequence[Passing]) -> int:
        """The stage that a process leads to which died after these passings."""
        decided = sum(passing in DECISIVE for passing in passed)
        return min(self.begun + decided, len(self.contents) - 1)


class Stages:
    """The scenarios of one world, each made when it is first asked for."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._ready: dict[str, Ready] = {}

    def ready(self, name: str) -> Ready:
        """The scenario, with its warehouse put to its start."""
        known = self.known(name)
        self.world.restore(_start(name))
        return known

    def known(self, name: str) -> Ready:
        """The scenario, wherever the warehouse is."""
        if name not in self._ready:
            self._ready[name] = self._make(name)
        return self._ready[name]

    def _make(self, name: str) -> Ready:
        world, scenario = self.world, SCENARIOS[name]
        if scenario.after is not None:
            earlier, step, moment, nth = scenario.after
            before = self.ready(earlier)
            at = [n for n, passing in enumerate(before.trace) if passing == (step, moment)][
                nth - 1
            ]
            begun = before.stage_after(before.trace[: at + 1])
            made = Ready(scenario, before.contents[: begun + 1], begun)
            assert world.kill(earlier, step, moment, nth)
        else:
            if not world.saved("base"):
                self._make_base()
            world.restore("base")
            with opened(world) as engine:
                scenario.build(engine)
                then = _contents(engine, scenario.stages[0])
                for statement in scenario.changes:
                    engine.spark.sql(statement)
                later = [_contents(engine, stage) for stage in scenario.stages[1:]]
            made = Ready(scenario, [then, *later])
        world.save(_start(name))
        bytes_before = _size(world)
        assert not world.kill(name, "", ""), world.said
        made.trace = world.told().trace
        made.taken = max(_size(world) - bytes_before, 4096)
        return made

    def _make_base(self) -> None:
        shutil.rmtree(self.world.warehouse, ignore_errors=True)
        with opened(self.world) as engine:
            for statement in shop.BASE:
                engine.spark.sql(statement)
        self.world.save("base")


@contextmanager
def opened(world: World) -> Iterator[Engine]:
    """A runner in this process."""
    engine = world.engine()
    try:
        yield engine
    finally:
        engine.close()


def check_readers(
    world: World, engine: Engine, old: Contents, new: Contents, *, writable: bool = True
) -> None:
    """Nobody has cleaned up yet: readers of committed data see one stage, everybody else a mixture
    only while a barrier is half published.

    Not `writable`: by a session that is open already. On a disk without any room SQLite cannot even
    open the catalog's file, nor can a lease be taken.
    """
    if not writable:
        if engine.store.last_committed():
            _check_views(world.precommitted(engine), new, "on a disk that takes nothing")
        return
    half = [barrier.state for barrier in engine.store.unfinished()] == ["PRECOMMIT"]
    seen = world.tables()
    expected = old if half else new
    if half:
        for name, rows in seen.items():
            assert rows in (old.get(name), new.get(name)), f"{name} is of neither barrier"
    else:
        _check_same(seen, expected, "after a fault")
    if engine.store.last_committed():
        _check_views(world.precommitted(engine), new, "at read_committed")
        _check_views(world.committed(engine), expected, "at repeatable_read")


def check_rest(world: World, engine: Engine, expected: Contents) -> None:
    """After a recovery: the tables are their queries, over the inputs that their barrier has
    recorded too, one version each, and what is kept for nobody is gone."""
    seen = world.tables()
    _check_same(seen, expected, "at rest")
    store = engine.store
    assert not store.unfinished(), store.unfinished()
    assert not store.staged.records(), store.staged.records()
    if store.last_committed():
        _check_views(world.committed(engine), expected, "at rest, at repeatable_read")
    for job in store.jobs():
        # A streaming table has no query to be verified by; what it must hold was compared above.
        there = is_state_table(job) or job.rpartition(".")[2] in seen
        if there and engine.plan(job).mode in ("incremental", "full"):
            differing = engine.verify(job)
            assert not differing, f"{job}: {differing}"
    for name, rows in world.changelogs().items():
        assert name not in expected or rows == expected[name], f"the changelog of {name}"


def check_clean(world: World, engine: Engine, *, refused: bool = False) -> None:
    """One sweep leaves nothing, and another one finds nothing to do.

    `refused`: the disk took no writes. Then Iceberg does not know whether its catalog has taken a
    commit, and leaves the files of that in the folder of a table that nobody lists.
    """
    engine.sweep()
    left = world.leftovers(engine)
    if refused:
        left = [what for what in left if not NEVER_LISTED.match(what)]
    assert not left, left
    states = {job for job in engine.store.jobs() if is_state_table(job)}
    assert world.states(engine) == states
    assert all(engine.store.readers(state) for state in states)
    assert not world.unpinned(engine), world.unpinned(engine)
    swept = world.fingerprint(engine)
    again = engine.sweep()
    assert not again, f"a second sweep has removed {again} things"
    assert world.fingerprint(engine) == swept, "a second sweep has changed something"


class Held:
    """A reader at repeatable_read, from before a fault to after all repairs."""

    def __init__(self, engine: Engine) -> None:
        store = engine.store
        self._reader = engine.reader() if store.last_committed() else None
        self._spark = engine.spark
        self._seen = self._read(store.jobs())

    def check(self) -> None:
        """Its answers are what they were, but for tables that somebody has dropped."""
        there = {name for name in self._seen if exists(self._spark, TableName.parse(name))}
        _check_views(self._read(there), self._seen, "of a reader since before the fault")

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()

    def _read(self, names: Iterable[str]) -> dict[str, shop.Rows]:
        if self._reader is None:
            return {}
        return {
            name: Counter(map(tuple, self._reader.sql(f"SELECT * FROM {name}").collect()))
            for name in names
        }


def _check_same(seen: Contents, expected: Contents, when: str) -> None:
    assert set(seen) == set(expected), f"{when}: {sorted(seen)}, not {sorted(expected)}"
    _check_views(seen, expected, when)


def _check_views(seen: Contents, expected: Contents, when: str) -> None:
    """What readers see of views; plain tables they see as they are."""
    for name, rows in seen.items():
        meant = expected.get(name, Counter())
        assert rows == meant, f"{when}: {name} lacks {meant - rows}, has besides {rows - meant}"


def _contents(engine: Engine, queries: Queries) -> Contents:
    """The rows of every table by its query over the base tables, without our own help."""
    found = {}
    for name, query in queries.items():
        text = query
        while inner := [n for n in queries if f"{shop.SCHEMA}.{n} " in f"{text} "]:
            for known in inner:
                text = f"{text} ".replace(f"{shop.SCHEMA}.{known} ", f"({queries[known]}) ")
        found[name] = Counter(map(tuple, engine.spark.sql(text).collect()))
    return found


def _start(name: str) -> str:
    return f"start of {name}"


def _size(world: World) -> int:
    """Bytes of the warehouse's files, in pages of a tmpfs."""
    pages = [-(-path.stat().st_size // 4096) for path in world.warehouse.rglob("*")]
    return 4096 * sum(pages)
