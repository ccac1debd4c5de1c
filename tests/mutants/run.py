"""Plants every bug of `planted.py` in a copy of the package and runs the tests that have to find it.

`make mutants ARGS='--tier duckdb'`, `'--only flip-sign --only union-arm'`. Exit code 1 when less
than `ENOUGH` of them are found. What a bug is found by must be right without it.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic

from tests.mutants.planted import BUGS, Bug

HERE = Path(__file__).parent
ROOT = HERE.parents[1]

ENOUGH = 0.95
SECONDS = {"duckdb": 120, "spark": 300}
"""How long one bug is looked for."""


@dataclass(frozen=True)
class Verdict:
    """Whether a bug was found, after how long, and by what."""

    bug: Bug
    found: bool
    seconds: float
    by: str = ""

    def __str__(self) -> str:
        state = f"found after {self.seconds:.0f} s" if self.found else "NOT FOUND"
        return f"{self.bug.tier:7} {self.bug.id:28} {state:20} {self.by[:120]}".rstrip()


def plant(bug: Bug, folder: Path) -> None:
    """A copy of the package in `folder`, with the bug."""
    shutil.copytree(
        ROOT / "dbt_streamsql",
        folder / "dbt_streamsql",
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    path = folder / "dbt_streamsql" / bug.file
    text = path.read_text()
    if text.count(bug.old) != 1:
        raise SystemExit(f"{bug.id}: the text occurs {text.count(bug.old)} times in {bug.file}")
    path.write_text(text.replace(bug.old, bug.new))


def hunt(bug: Bug, seed: int, seconds: float) -> Verdict:
    """Look for one bug."""
    began = monotonic()
    with TemporaryDirectory(prefix="mutant-") as name:
        folder = Path(name)
        plant(bug, folder)
        look = _duckdb if bug.tier == "duckdb" else _spark
        found, by = look(bug, folder, seed, seconds)
    return Verdict(bug, found, monotonic() - began, by)


def _duckdb(bug: Bug, folder: Path, seed: int, seconds: float) -> tuple[bool, str]:
    until, told = monotonic() + seconds, ""
    while (left := until - monotonic()) > 0:
        command = [str(HERE / "duck_hunt.py"), bug.hint, str(seed), str(left)]
        done = _python(command, folder, left + 60)
        if done is None or done.returncode == 0:
            break
        try:
            seed, failures = json.loads(done.stdout.splitlines()[-1])
        except (IndexError, ValueError):
            return False, f"the hunt broke: {done.stderr[-400:]}"
        for kind, text, scenario in failures:
            if not _wrong_anyway(scenario):
                return True, f"{kind}: {' '.join(text.split())}"
        seed, told = seed + 1, f"seed {seed} is wrong without the bug too"
    return False, told


def _wrong_anyway(scenario: str) -> bool:
    """Whether a scenario fails with the code as it is."""
    sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "differential")]
    try:
        from tests.differential.duck_campaign import play
        from tests.differential.duck_grammar import Scenario
    finally:
        del sys.path[:2]
    return bool(play(Scenario.from_json(scenario)))


def _spark(bug: Bug, folder: Path, seed: int, seconds: float) -> tuple[bool, str]:
    tests = ROOT / "tests"
    targets = [
        tests / "property" / "test_small_scenarios.py",
        tests / "differential" / "test_wide_tables_on_duckdb.py",
        tests / "functional" / "test_foreign_writers.py",
        tests / "functional" / "test_one_read.py",
        tests / "functional" / "test_redefinitions.py",
        tests / "functional" / "test_partial_update.py",
        tests / "differential" / "test_state_ttl_on_duckdb.py",
        tests / "functional" / "test_state_ttl.py",
        tests / "functional" / "test_other_ttls.py",
    ]
    options = ["-x", "-q", "-p", "no:cacheprovider", "--rootdir", str(ROOT)]
    # The project's own folder, first among pytest's paths otherwise, has the code without the bug.
    paths = [folder, tests, tests / "property", tests / "differential"]
    options += ["-o", f"pythonpath={' '.join(map(str, paths))}"]
    command = ["-m", "pytest", "-c", str(ROOT / "pyproject.toml"), *options]
    words = " and ".join(bug.hint.split())
    done = _python([*command, *map(str, targets), "-k", words], folder, seconds)
    if done is None or done.returncode == 0:
        return False, "" if done is not None else "no time left"
    lines = [line for line in done.stdout.splitlines() if line.startswith("E  ")]
    told = lines[0].removeprefix("E").strip() if lines else done.stdout[-300:]
    # Other codes than 1: nothing was collected, or pytest was used wrongly.
    return done.returncode == 1, told


def _python(
    command: list[str], folder: Path, seconds: float
) -> subprocess.CompletedProcess[str] | None:
    """Python in `folder`, where it finds the copy; None when it takes too long."""
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
    verdicts = []
    for number, bug in enumerate(chosen, 1):
        verdicts.append(hunt(bug, given.seed, given.seconds or SECONDS[bug.tier]))
        print(f"{number:3}/{len(chosen)} {verdicts[-1]}", flush=True)
    missed = [verdict.bug for verdict in verdicts if not verdict.found]
    for bug in missed:
        print(f"NOT FOUND {bug.id}, {bug.file}: {bug.wrong}")
    share = 1 - len(missed) / len(verdicts) if verdicts else 0.0
    print(f"{len(verdicts) - len(missed)} of {len(verdicts)} found, {share:.0%}")
    return 0 if share >= ENOUGH else 1


if __name__ == "__main__":
    sys.exit(main())
