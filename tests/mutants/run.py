"""Plants every bug of `planted.py` in a copy of the project and runs the tests that have to find it.

`make mutants ARGS='--tier duckdb'`, `'--only flip-sign --only union-arm'`; `'--check'` only tells
whether all can be planted. Exit code 1 when less than `ENOUGH` of them are found, or one does not
fit. What a bug is found by must be right without it.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock
from time import monotonic

from tests.differential.duck_campaign import play
from tests.differential.duck_grammar import Scenario
from tests.mutants import duck_hunt
from tests.mutants.planted import BUGS, Bug

ROOT = Path(__file__).parents[2]
CHECKOUT = ("dbt_streamsql", "macros", "tests", "integration_tests", "benchmarks")
"""What the tests of a bug import or read, beside the settings of pytest."""

MARK = "pytest.mark.hunts"

ENOUGH = 0.95
SECONDS = {"duckdb": 120, "spark": 300}
"""How long one bug is looked for."""

_playing = Lock()
"""Held while the code as it is plays a scenario: in this process, so one at a time."""


@dataclass(frozen=True)
class Found:
    """Whether a bug was found, by which test, and what that told."""

    found: bool
    test: str = ""
    told: str = ""


@dataclass(frozen=True)
class Verdict:
    """What became of the hunt for a bug, and after how long."""

    bug: Bug
    outcome: Found
    seconds: float

    def __str__(self) -> str:
        state = f"found after {self.seconds:.0f} s" if self.outcome.found else "NOT FOUND"
        by = f"{self.outcome.test}: {self.outcome.told[:120]}".removeprefix(": ")
        return f"{self.bug.tier:7} {self.bug.id:28} {state:20} {by}".rstrip(" :")


def plant(bug: Bug, folder: Path) -> None:
    """A checkout in `folder`, whose package has the bug."""
    for name in CHECKOUT:
        shutil.copytree(ROOT / name, folder / name)
    shutil.copy(ROOT / "pyproject.toml", folder)
    (folder / bug.file.relative_to(ROOT)).write_text(bug.planted(), encoding="utf-8")


def check(bugs: Sequence[Bug]) -> int:
    """Print how many bugs can be planted, and which not. An exit code."""
    fit: Counter[str] = Counter()
    for bug in bugs:
        try:
            bug.planted()
        except (ImportError, ValueError) as error:  # no such symbol; it does not fit
            print(f"{bug.tier:7} {bug.id:28} {error}")
        else:
            fit[bug.tier] += 1
    tiers = ", ".join(f"{tier} {count}" for tier, count in sorted(fit.items()))
    print(f"{fit.total()} of {len(bugs)} can be planted: {tiers}")
    return 0 if fit.total() == len(bugs) else 1


def hunt(bug: Bug, seed: int, seconds: float) -> Verdict:
    """Look for one bug."""
    began = monotonic()
    with TemporaryDirectory(prefix="mutant-") as name:
        folder = Path(name)
        plant(bug, folder)
        look = _duckdb if bug.tier == "duckdb" else _spark
        outcome = look(bug, folder, seed, seconds)
    return Verdict(bug, outcome, monotonic() - began)


def _duckdb(bug: Bug, folder: Path, seed: int, seconds: float) -> Found:
    until, told = monotonic() + seconds, ""
    while (left := until - monotonic()) > 0:
        command = ["-m", duck_hunt.__name__, bug.hint, str(seed), str(left)]
        done = _python(command, folder, left + 60)
        if done is None or done.returncode == 0:
            break
        try:
            seed, failures = json.loads(done.stdout.splitlines()[-1])
        except (IndexError, ValueError):
            return Found(False, told=f"the hunt broke: {done.stderr[-400:]}")
        for kind, text, scenario in failures:
            if not _wrong_anyway(scenario):
                by = f"{duck_hunt.__name__} {bug.hint!r} {seed}"
                return Found(True, by, f"{kind}: {' '.join(text.split())}")
        seed, told = seed + 1, f"seed {seed} is wrong without the bug too"
    return Found(False, told=told)


def _wrong_anyway(scenario: str) -> bool:
    """Whether a scenario fails with the code as it is."""
    with _playing:
        return bool(play(Scenario.from_json(scenario)))


def _spark(bug: Bug, folder: Path, seed: int, seconds: float) -> Found:
    tests = (folder / "tests").rglob("test_*.py")
    targets = [str(path.relative_to(folder)) for path in tests if MARK in path.read_text()]
    options = ["-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
    words = " and ".join(bug.hint.split())
    done = _python([*options, *sorted(targets), "-k", words], folder, seconds)
    if done is None or done.returncode == 0:
        return Found(False, told="" if done is not None else "no time left")
    lines = done.stdout.splitlines()
    failed = next((line for line in lines if line.startswith("FAILED ")), "")
    errors = [line for line in lines if line.startswith("E  ")]
    told = errors[0].removeprefix("E").strip() if errors else done.stdout[-300:]
    # Other codes than 1: nothing was collected, or pytest was used wrongly.
    test = failed.removeprefix("FAILED ").partition(" - ")[0]
    return Found(done.returncode == 1, test, told)


def _python(
    command: list[str], folder: Path, seconds: float
) -> subprocess.CompletedProcess[str] | None:
    """Python in `folder`, whose packages are found first; None when it takes too long."""
    environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        return subprocess.run(
            [sys.executable, *command],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return None


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", action="append", default=[], help="the id of a bug")
    parser.add_argument("--tier", choices=tuple(SECONDS), help="the bugs of one tier")
    parser.add_argument("--check", action="store_true", help="whether they can be planted")
    parser.add_argument("--jobs", type=int, default=1, help="hunts side by side")
    parser.add_argument("--seed", type=int, default=1000, help="the first seed")
    parser.add_argument("--seconds", type=float, help="how long one bug is looked for")
    given = parser.parse_args(arguments)
    unknown = set(given.only) - {bug.id for bug in BUGS}
    if unknown:
        parser.error(f"no such bug: {', '.join(sorted(unknown))}")
    chosen = [
        bug
        for bug in BUGS
        if (not given.only or bug.id in given.only) and given.tier in {None, bug.tier}
    ]
    if given.check:
        return check(chosen)
    verdicts = []
    with ThreadPoolExecutor(given.jobs) as pool:
        hunts = [
            pool.submit(hunt, bug, given.seed, given.seconds or SECONDS[bug.tier])
            for bug in chosen
        ]
        for number, done in enumerate(as_completed(hunts), 1):
            verdicts.append(done.result())
            print(f"{number:3}/{len(chosen)} {verdicts[-1]}", flush=True)
    return _tally(verdicts)


def _tally(verdicts: Sequence[Verdict]) -> int:
    for verdict in verdicts:
        if not verdict.outcome.found:
            bug = verdict.bug
            print(f"NOT FOUND {bug.id}, {bug.symbol} of {bug.file.name}: {bug.wrong}")
    found = sum(verdict.outcome.found for verdict in verdicts)
    share = found / len(verdicts) if verdicts else 0.0
    print(f"{found} of {len(verdicts)} found, {share:.0%}")
    return 0 if share >= ENOUGH else 1


if __name__ == "__main__":
    sys.exit(main())
