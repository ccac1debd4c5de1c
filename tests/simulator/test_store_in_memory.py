"""The store that the simulator uses answers as MetaService's own does, call by call."""

from __future__ import annotations

import random
import re
from collections import Counter

import pytest

from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.meta import (
    NOOP,
    ChangeFile,
    Fence,
    Job,
    MetaStore,
    Retention,
    TableVersion,
    open_store,
)
from tests.simulator.sim_ledger import Ledger
from tests.simulator.sim_store import MemoryStore

CALLS = 220
TABLES = ("lake.s.a", "lake.s.b", "lake.s.c")
OUTSIDE = ("lake.s.x", "lake.s.y")
RETENTIONS = (Retention(20.0), Retention(0.0), Retention(9e9, 2), Retention(30.0, 3))
PATHS = ("p1", "p2", "p3", "p4")


class Time:
    """Seconds that pass only when the test says so."""

    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


class Pair:
    """One process of each kind; both are given the same calls.

    Names of owners and leases are made up by each store itself: they are known by their number.
    """

    def __init__(self, real: MetaStore, memory: MemoryStore):
        self.real, self.memory = real, memory
        self.fences: list[tuple[Fence, Fence]] = [(Fence(0, ""), Fence(0, ""))]
        self.leases: list[tuple[str, str]] = [("none", "none")]

    def call(self, name, *arguments, **options):
        """Both answers, errors by their code and first line, without made-up names."""
        answers = []
        for side, store in enumerate((self.real, self.memory)):
            mine = [a[side] if isinstance(a, tuple) else a for a in arguments]
            target = store
            for part in name.split(".")[:-1]:
                target = getattr(target, part)
            try:
                answers.append(getattr(target, name.split(".")[-1])(*mine, **options))
            except StreamSqlError as error:
                answers.append((error.code, broken(error)))
            except ValueError as error:
                answers.append(("ValueError", str(error)))
        if name == "acquire" and isinstance(answers[0], Fence):
            self.fences.append((answers[0], answers[1]))
        if name == "leases.take" and not isinstance(answers[0], tuple):
            self.leases.append((answers[0].id, answers[1].id))
        return answers


def broken(error: StreamSqlError) -> str:
    """What did not hold; of other refusals the code says all."""
    return f"{error.given} but {error.allowed}" if error.code == "META_CONFLICT" else ""


def plain(answer):
    """Without the names that the stores make up."""
    answer = sorted(answer) if isinstance(answer, set) else answer
    # The order of tables is that of the rows, which nobody relies on.
    answer = sorted(answer.items()) if isinstance(answer, dict) else answer
    return re.sub(r"owner='[^']*'|id='[^']*'|of \S+:\S+:\w+", "…", repr(answer))


def versions(rng, barrier, count):
    return [
        TableVersion(
            barrier,
            table,
            state="WRITTEN" if rng.random() < 0.03 else "PROCESSED",
            snapshot=rng.randrange(100),
            branch=f"streamsql_{barrier}",
            mode=rng.choice([NOOP, "full", "append"]),
            inputs={
                name: rng.choice([None, 1, 2]) for name in sorted(rng.sample(TABLES + OUTSIDE, 2))
            },
            stats={"n": rng.random()},
        )
        for table in rng.sample(TABLES, count)
    ]


def a_call(rng, pair: Pair, last: int):
    """A random call, mostly with the newest fence and the newest barrier."""
    fence = pair.fences[-1] if rng.random() < 0.93 else rng.choice(pair.fences)
    barrier = last if rng.random() < 0.85 else rng.randrange(last + 2)
    table = rng.choice(TABLES)
    inputs = {name: rng.choice([None, 5, 6]) for name in rng.sample(OUTSIDE, rng.randrange(3))}
    sources = tuple(rng.choices(TABLES + OUTSIDE, k=rng.choice([1, 2, 2])))
    job = Job(table, rng.choice(["", "m1", "m1", "m1", "m2"]), "q", sources=sources)
    file = ChangeFile(table, barrier, rng.choice(PATHS), rng.randrange(9))
    lease = rng.choice(pair.leases)
    forgotten = tuple([one] for one in lease)
    weighted = [
        (4, "acquire"),
        (3, "release", fence),
        (1, "newest_barrier", fence),
        (14, "begin", fence, inputs, dict.fromkeys(inputs, 3.5)),
        (3, "add_inputs", fence, barrier, inputs),
        (8, "stage_job", fence, barrier, job),
        (12, "processed_many", fence, versions(rng, barrier, rng.randrange(4))),
        (3, "unstage", fence, barrier, table),
        (14, "precommit", fence, barrier),
        (22, "written", fence, barrier, table, rng.choice([None, 77])),
        (16, "commit", fence, barrier),
        (4, "abort", fence, barrier),
        (2, "drop_job", fence, table),
        (8, "add_change_file", fence, file),
        (2, "forget_change_files", fence, table, barrier),
        (2, "forget_aborted_change_files", fence),
        (2, "forget_change_files_at", fence, rng.sample(PATHS, 2)),
        (2, "keep_from", fence, rng.choice(RETENTIONS)),
        (1, "forget", fence, Retention()),
        (4, "leases.take", "me", barrier, 5.0),
        (2, "leases.renew", lease, 5.0),
        (1, "leases.give_back", lease),
        (1, "leases.forget", forgotten),
    ]
    sensible = a_next_step(pair, last)
    wanted = [entry for entry in weighted if entry[1] in sensible and rng.random() < 0.97]
    chosen = wanted if wanted and rng.random() < 0.6 else weighted
    call = rng.choices(chosen, [entry[0] for entry in chosen])[0][1:]
    if call[0] == "written" and chosen is wanted:
        waiting = [v.table for v in pair.memory.versions(last) if v.to_publish]
        call = ("written", pair.fences[-1], last, *waiting[:1], rng.choice([None, 77]))
    return call


def a_next_step(pair: Pair, last: int) -> tuple[str, ...]:
    """Calls that the state of the newest barrier allows, so that random ones come far."""
    memory, found = pair.memory, pair.memory.barrier(last)
    if not memory.ledger.holder:
        return ("acquire",)
    if found is None or found.state in ("COMMIT", "ABORT"):
        return ("begin",)
    if found.state == "OPEN":
        return ("stage_job", "processed_many", "add_change_file", "precommit")
    return ("written",) if any(v.to_publish for v in memory.versions(last)) else ("commit",)


def questions(rng, last):
    """Everything that can be asked, of a random barrier and a random table."""
    barrier, table = rng.randrange(last + 2), rng.choice(TABLES + OUTSIDE)
    for name in WITHOUT_ARGUMENTS:
        yield (name,)
    for name in QUESTIONS_OF_A_BARRIER:
        yield name, barrier
    yield "committed_before", barrier, 2
    for name in ("latest", "history", "readers"):
        yield name, table
    yield "history", table, barrier
    yield "surplus", barrier
    yield "outlook", rng.choice(RETENTIONS)
    yield "change_files", table, rng.randrange(3), barrier


WITHOUT_ARGUMENTS = (
    "unfinished",
    "last_committed",
    "fence",
    "jobs",
    "topology",
    "latest_all",
    "outside_tables",
    "tables_with_change_files",
    "aborted_change_files",
    "kept_from",
    "leases.live",
    "provisional_jobs",
)
QUESTIONS_OF_A_BARRIER = (
    "barrier",
    "inputs",
    "inputs_as_of",
    "input_times",
    "versions",
    "staged_jobs",
    "latest_all",
)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(6, 12))
def test_the_same_calls_get_the_same_answers_and_the_same_refusals(tmp_path, seed):
    rng, time = random.Random(seed), Time()
    real = open_store(f"sqlite:///{tmp_path / 'meta.db'}", time)
    pair = Pair(real, MemoryStore(Ledger(), time))
    tally: Counter[str] = Counter()
    try:
        for step in range(CALLS):
            time.now += rng.choice([0, 1, 3, -2])
            call = ("acquire",) if step == 0 else a_call(rng, pair, _last(pair))
            expected, found = pair.call(*call)
            assert plain(found) == plain(expected), (step, call)
            refused = isinstance(expected, tuple) and len(expected) == 2
            tally[f"{call[0]}: {expected[0] if refused else 'done'}"] += 1
            ended = pair.call("leases.ended")
            assert len(ended[0]) == len(ended[1])
            for question in questions(rng, _last(pair)):
                expected, found = pair.call(*question)
                assert plain(found) == plain(expected), (step, call, question)
    finally:
        real.close()
    assert tally["commit: done"] > 2
    assert tally["commit: META_CONFLICT"] > 2


def _last(pair):
    return pair.memory.ledger.last_barrier


def test_a_second_process_is_told_that_the_first_is_at_work(tmp_path):
    url, ledger = f"sqlite:///{tmp_path / 'meta.db'}", Ledger()
    for first, second in (
        (open_store(url), open_store(url)),
        (MemoryStore(ledger, Time()), MemoryStore(ledger, Time())),
    ):
        fence = first.acquire()
        with pytest.raises(StreamSqlError) as caught:
            second.acquire()
        assert caught.value.code == "WAREHOUSE_BUSY"
        first.release(fence)
        assert second.acquire().token == fence.token + 1
        for store in (first, second):
            if not isinstance(store, MemoryStore):
                store.close()
