"""Readers at each level beside a writer that is killed again and again."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

from dbt_streamsql import Engine
from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.quoting import TableName
from tests.isolation import isolation_tables as bank
from tests.isolation.isolation_checker import REALLY, Contents, Findings
from tests.isolation.isolation_tables import QUERY, Answer
from tests.isolation.isolation_writer import TURNS, Orders
from tests.isolation.planted_isolation import READERS
from tests.support import spark_child
from tests.support.product import LEVELS, embedded, symbol

load = symbol("load", beside="shape")

WRITER = "tests.isolation.isolation_writer"
PASSINGS = 80
"""Steps, about two epochs, within which a writer dies."""

HELD = 5
"""Answers that a reader at repeatable_read gets at least before it lets go."""

OUTLIVED = (0, 1, 2, 4)
"""Barriers that are committed while it holds its own: after one, only its lease keeps that."""

PACE = 0.05
"""Seconds between two reads of a level, which are the writer's."""

GONE = ("NoSuchTableException", "TABLE_OR_VIEW_NOT_FOUND", "Cannot find", "NotFoundException",
        "does not exist", "Table does not exist", "FAILED_READ_FILE")  # fmt: skip


@dataclass
class Campaign:
    """`spark` is the session that all share; the warehouse is in `folder`."""

    spark: Any
    folder: Path
    reads: int
    seed: int
    planted: str = ""
    seconds: float = 3600
    findings: Findings = field(default_factory=Findings)
    deaths: int = 0
    _committed: dict[int, int | None] = field(default_factory=dict)
    """The version of the steps that each barrier has read. Seen as they come: they are forgotten."""

    def run(self) -> Findings:
        """All reads, or until the seconds are over, or a planted mistake is found."""
        engine = self._engine()
        bank.build(engine)
        contents, over = Contents(), threading.Event()
        readers = [
            threading.Thread(target=self._reader, args=(level, contents, over), name=level)
            for level in LEVELS
        ]
        with ExitStack() as bugs:
            if self.planted in READERS:
                bugs.enter_context(READERS[self.planted]())
            for reader in readers:
                reader.start()
            self._writers(engine, over)
            over.set()
            for reader in readers:
                reader.join()
        self._settle(engine)
        engine.close()
        return self.findings

    def __str__(self) -> str:
        return (
            f"seed {self.seed}: {len(self._committed)} barriers committed, the writer killed "
            f"{self.deaths} times\n{self.findings}"
        )

    # -- the writer --------------------------------------------------------------------------

    def _writers(self, engine: Engine, over: threading.Event) -> None:
        """One writer after another, until there are reads enough."""
        rng, end = Random(self.seed), time.monotonic() + self.seconds
        while not over.is_set():
            orders = Orders(
                str(self._warehouse),
                rng.randrange(1 << 30),
                rng.randrange(1, PASSINGS),
                rng.choice(("", *TURNS)),
                self.planted,
            )
            with (self.folder / "writer.log").open("wb") as log:
                process = subprocess.Popen(
                    [sys.executable, "-m", WRITER, orders.to_json()],
                    env=spark_child.environment(self.spark),
                    stdout=log,
                    stderr=log,
                )
            try:
                while process.poll() is None and not over.is_set():
                    time.sleep(0.1)
                    self._look(engine)
                    if self._enough() or time.monotonic() > end:
                        over.set()
            finally:
                process.kill()
                code = process.wait()
            if code != -signal.SIGKILL:
                said = (self.folder / "writer.log").read_text(errors="replace")[-4000:]
                raise AssertionError(f"the writer ended with {code}\n{said}")
            self.deaths += 1

    def _enough(self) -> bool:
        found = self.planted and self.findings.forbidden
        return bool(found) or self.findings.reads.total() >= self.reads

    # -- readers -----------------------------------------------------------------------------

    def _reader(self, level: str, contents: Contents, over: threading.Event) -> None:
        engine = self._engine()
        ask = self._held if level == "repeatable_read" else self._asked
        try:
            number = 0
            while not over.is_set():
                number = ask(engine, level, contents, number, over)
        except Exception as error:  # noqa: BLE001 - no reader may end otherwise
            self.findings.found(level, "failed", f"{type(error).__name__}: {error}"[:2000])
            over.set()
        finally:
            engine.close()

    def _asked(
        self, engine: Engine, level: str, contents: Contents, number: int, over: threading.Event
    ) -> int:
        """One query at a level."""
        really = number % REALLY == 0
        try:
            text = engine.adapter_api.rewrite(QUERY, level)
            answer, agrees = contents.answer(engine.spark, text, really=really)
        except Exception as error:
            if not _moved_away(error):
                raise
            # A staged version was published, or undone, after it had been named: asked again.
            self.findings.refuse(level, _kind(error))
            return number
        self.findings.read(level, answer, agrees=agrees, really=really)
        time.sleep(PACE)
        return number + 1

    def _held(
        self, engine: Engine, level: str, contents: Contents, number: int, over: threading.Event
    ) -> int:
        """A reader that holds a barrier: whatever happens, its answers are the same."""
        rng = Random(f"{self.seed}/{number}")
        with engine.reader() as reader:
            first: Answer | None = None
            until = reader.barrier + rng.choice(OUTLIVED)
            for n in count():
                really = n % REALLY == REALLY - 1
                text = reader.rewrite(QUERY)
                answer, agrees = contents.answer(engine.spark, text, really=really)
                first = first or answer
                self.findings.read(level, answer, agrees=agrees, really=really)
                self.findings.repeated(level, first, answer)
                newest = engine.store.last_committed()
                if over.is_set() or (n >= HELD and newest >= until):
                    break
                time.sleep(PACE)
            last = Answer.of(reader.sql(QUERY).first())
            self.findings.read(level, last, agrees=True, really=True)
            self.findings.repeated(level, first or last, last)
        return number + 1

    # -- inside ------------------------------------------------------------------------------

    def _settle(self, engine: Engine) -> None:
        """When all is over, the next run recovers; which barriers have been committed."""
        engine.begin()
        engine.abort()
        engine.advance()
        wrong = [view for view in bank.VIEWS if engine.verify(f"{bank.SCHEMA}.{view}")]
        assert not wrong, f"{wrong} differ from their queries"
        self._look(engine)
        steps = load(engine.spark, TableName.parse(bank.ROOTS[1]))
        assert steps is not None
        self.findings.committed({steps.live_rows(seen) for seen in self._committed.values()})

    def _look(self, engine: Engine) -> None:
        """Which barriers have been committed since the last look."""
        store = engine.store
        for barrier in store.committed_before(store.last_committed() + 1, 100):
            if barrier not in self._committed:
                self._committed[barrier] = store.inputs_as_of(barrier)[bank.ROOTS[1]]

    @property
    def _warehouse(self) -> Path:
        return self.folder / "warehouse"

    def _engine(self) -> Engine:
        return Engine.open(self._warehouse, spark=embedded(str(self._warehouse)))


def _moved_away(error: Exception) -> bool:
    if isinstance(error, StreamSqlError):
        return error.code == "CONSISTENCY_UNAVAILABLE"
    return any(sign in str(error) for sign in GONE)


def _kind(error: Exception) -> str:
    return error.code if isinstance(error, StreamSqlError) else "a version moved"
