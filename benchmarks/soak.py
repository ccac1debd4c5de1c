"""Many epochs in one process, as a runner takes them: what they cost and what they leave behind.

python -m benchmarks.soak --views 100 --epochs 1000     (docs/benchmarks.md)

Views over one table, in pairs of which the second reads the first. Every tenth epoch, `--change`,
finds a change of the table; the others find none. At each tenth garbage is collected, the
table's owner expires its snapshots, and what is left is counted: the growth is from the first on,
when caches are full. The files of the table itself, which no view owns, are not counted. Needs
Linux.
"""

from __future__ import annotations

import argparse
import gc
import os
import statistics
import sys
import tempfile
import threading
import time
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import func, select

from benchmarks.dag import EVENTS, make_views
from dbt_streamsql import Engine
from dbt_streamsql.meta.store.sql.schema import METADATA
from dbt_streamsql.runtime.spark.session import open_session
from dbt_streamsql.runtime.spark.settings import SessionSettings

SOURCE = EVENTS.rpartition(".")[2]
EXPIRY = (
    f"CALL lake.system.expire_snapshots(table => 'bench.{SOURCE}', "
    "older_than => now(), retain_last => 1)"
)
"""What the owner of the table does now and then."""

IDLE_SECONDS = 1.0
"""The target for an epoch that finds no change, over a hundred views."""


@dataclass(frozen=True)
class Left:
    """What there is of this process and its warehouse. Memory is in MiB."""

    python: int
    java: int
    threads: int
    files_open: int
    files: int
    rows_of_meta: int


def main() -> int:
    """1 when a view is not its query, or an epoch that found no change started a Spark job."""
    given = _arguments()
    with tempfile.TemporaryDirectory(prefix="streamsql-soak-") as folder:
        spark = open_session(SessionSettings(warehouse=folder))
        engine = Engine.open(folder, spark=spark, retain="0s", retain_barriers=20)
        views = list(make_views(engine, given.views, given.rows))
        wrong = _soak(engine, Path(folder), given)
        differing = sum(len(engine.verify(view)) for view in views[:: max(1, len(views) // 10)])
        print(f"rows that differ from the queries, of ten views: {differing}")
        engine.close()
        spark.stop()
    return 1 if wrong or differing else 0


def _soak(engine: Engine, folder: Path, given: argparse.Namespace) -> int:
    idle, busy, extra = [], [], 0
    every = max(1, given.epochs // 10)
    print("epoch  idle ms  change s  python MiB  java MiB  threads  open  files  rows of meta")
    for number in range(1, given.epochs + 1):
        changes = number % given.change == 0
        if changes:
            engine.spark.sql(
                "INSERT INTO lake.bench.events "
                f"SELECT id, id % 1000, {number % 97} FROM range(100)"
            )
        jobs, began = _jobs(engine), time.perf_counter()
        report = engine.advance(keep_going=True)
        (busy if changes else idle).append(time.perf_counter() - began)
        extra += 0 if changes else _jobs(engine) - jobs
        assert not report.failed, report.failed
        if number % every == 0:
            engine.gc()
            engine.spark.sql(EXPIRY)
            left = _left(engine, folder)
            cells = [f"{number:5}", f"{1000 * statistics.median(idle or [0]):7.0f}"]
            cells += [f"{statistics.median(busy or [0]):8.2f}", *(f"{n:9}" for n in astuple(left))]
            print("  ".join(cells), flush=True)
            idle, busy = idle[-every:], busy[-every:]
    verdict = "met" if statistics.median(idle) <= IDLE_SECONDS else "missed"
    print(f"no change: {statistics.median(idle):.2f} s, {extra} Spark jobs in all ({verdict})")
    return extra


def _left(engine: Engine, folder: Path) -> Left:
    gc.collect()
    java: Any = engine.spark.sparkContext._jvm.java.lang  # noqa: SLF001 - no public getter
    for _ in range(3):
        # Spark lets go of what belongs to an object after that has been collected.
        java.System.gc()
        time.sleep(1)
    pid = java.ProcessHandle.current().pid()
    memory = java.management.ManagementFactory.getMemoryMXBean()
    used = memory.getHeapMemoryUsage().getUsed() + memory.getNonHeapMemoryUsage().getUsed()
    database = engine.store.database
    with database.read() as connection:
        rows = sum(
            int(connection.execute(select(func.count()).select_from(table)).scalar_one())
            for table in METADATA.sorted_tables
        )
    status = Path("/proc/self/status").read_text(encoding="ascii")
    resident = next(line for line in status.splitlines() if line.startswith("VmRSS"))
    return Left(
        int(resident.split()[1]) >> 10,
        used >> 20,
        threading.active_count() + _entries(f"/proc/{pid}/task"),
        _entries("/proc/self/fd") + _entries(f"/proc/{pid}/fd"),
        sum(len(files) for at, _, files in os.walk(folder) if SOURCE not in Path(at).parts),
        rows,
    )


def _entries(folder: str) -> int:
    return sum(1 for _ in Path(folder).iterdir())


def _jobs(engine: Engine) -> int:
    context = engine.spark.sparkContext._jsc.sc()  # noqa: SLF001 - no public getter
    return int(context.dagScheduler().numTotalJobs())


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="benchmarks.soak", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--views", type=int, default=100, help="%(default)s")
    parser.add_argument("--rows", type=int, default=100_000, help="of the table: %(default)s")
    parser.add_argument("--epochs", type=int, default=1000, help="%(default)s")
    parser.add_argument("--change", type=int, default=10, help="every so many: %(default)s")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
