"""`make chaos N=… SEED=…`: random faults with a tally; `FAULT=kill/first/7` repeats one. Exit code
1 when something broke."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from time import monotonic

import spark_defaults
from fault_campaign import Fault, Tally, draw
from fault_stages import Stages
from fault_world import World
from spark_way import settings

from dbt_streamsql.runtime.session import open_session


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--faults", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=0, help="stop then; 0: when all is done")
    parser.add_argument("--fault", nargs="+", help="kind/scenario/number: these only")
    given = parser.parse_args()
    faults: Iterable[Fault] = draw(given.seed, given.faults)
    if given.fault:
        faults = map(Fault.parse, given.fault)
    with tempfile.TemporaryDirectory() as folder:
        spark_defaults.use()
        spark = open_session(settings(str(Path(folder) / "unused")))
        tally = _campaign(faults, Stages(World(spark, Path(folder))), given)
        spark.stop()
    return 1 if tally.failed else 0


def _campaign(faults: Iterable[Fault], stages: Stages, given: argparse.Namespace) -> Tally:
    began, tally = monotonic(), Tally()
    for number, fault in enumerate(faults, 1):
        if given.minutes and monotonic() - began > 60 * given.minutes:
            break
        tally.meet(fault, stages)
        broken = tally.failed.get(str(fault))
        if broken is not None:
            print(f"{broken}\n{fault} failed; again: make chaos FAULT={fault}", flush=True)
        passed = monotonic() - began
        print(
            f"{number}: {fault}; {len(tally.failed)} failed, {passed:.0f} s",
            end="\r" if sys.stdout.isatty() else "\n",
            flush=True,
        )
    print(f"seed {given.seed}; {tally}\n{monotonic() - began:.0f} s")
    return tally


if __name__ == "__main__":
    sys.exit(main())
