"""`make chaos N=… SEED=…`: random faults with a tally; `FAULT=kill/first/7` repeats one. Exit code
1 when something broke."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from time import monotonic

from tests.faults.fault_campaign import Fault, Met, Tally, draw
from tests.faults.fault_stages import Stages
from tests.faults.fault_world import World
from tests.support import spark_defaults
from tests.support.product import open_session
from tests.support.spark_way import settings

_own: list[Stages] = []
"""The world of a process of the campaign."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--faults", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1, help="processes side by side")
    parser.add_argument("--minutes", type=float, default=0, help="stop then; 0: when all is done")
    parser.add_argument("--file", type=Path, help="what was met; those in it are not met again")
    parser.add_argument("--fault", nargs="+", help="kind/scenario/number: these only")
    given = parser.parse_args()
    tally = _campaign(given)
    print(f"seed {given.seed}; {tally}")
    return 1 if tally.failed else 0


def _campaign(given: argparse.Namespace) -> Tally:
    began, tally, known = monotonic(), Tally(), set()
    if given.file is not None and given.file.exists():
        for line in given.file.read_text(encoding="utf-8").splitlines():
            met = Met(**json.loads(line))
            tally.count(met)
            known.add(met.fault)
    drawn = [str(fault) for fault in draw(given.seed, given.faults)]
    faults = (fault for fault in given.fault or drawn if fault not in known)
    for met in _met(faults, given, began):
        tally.count(met)
        if given.file is not None:
            with given.file.open("a", encoding="utf-8") as file:
                file.write(json.dumps(vars(met)) + "\n")
        if met.broken:
            print(f"{met.broken}\n{met.fault} failed; again: make chaos FAULT={met.fault}")
        print(
            f"{tally.met}: {met.fault}; {len(tally.failed)} failed, {monotonic() - began:.0f} s",
            end="\r" if sys.stdout.isatty() else "\n",
            flush=True,
        )
    return tally


def _met(faults: Iterator[str], given: argparse.Namespace, began: float) -> Iterator[Met]:
    """Faults as they were met, some side by side."""
    with (
        tempfile.TemporaryDirectory() as folder,
        ProcessPoolExecutor(given.jobs, get_context("spawn"), _begin, (folder,)) as pool,
    ):
        under_way: set[Future[Met]] = set()
        while True:
            if not given.minutes or monotonic() - began < 60 * given.minutes:
                more = islice(faults, given.jobs - len(under_way))
                under_way |= {pool.submit(_meet, fault) for fault in more}
            if not under_way:
                return
            done, under_way = wait(under_way, return_when=FIRST_COMPLETED)
            yield from (future.result() for future in done)


def _begin(folder: str) -> None:
    spark_defaults.use()
    own = Path(folder) / str(os.getpid())
    own.mkdir()
    spark = open_session(settings(str(own / "unused")))
    _own.append(Stages(World(spark, own)))


def _meet(fault: str) -> Met:
    return Fault.parse(fault).meet(_own[0])


if __name__ == "__main__":
    sys.exit(main())
