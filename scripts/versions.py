"""A share of the tests with other versions of Spark and Iceberg: `make versions`.

PySpark of another version lies in front of the environment's own; everything else is the same.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
SETS = (("4.0.2", "1.11.0"), ("", "1.11.0"))
"""PySpark ('': that of the environment) and Iceberg. docs/profile.md#versions lists them."""
SHARE = (
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


def main() -> int:
    """1 when a test fails with some set."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", help="the PySpark of one set")
    parser.add_argument("tests", nargs="*", default=SHARE)
    given = parser.parse_args()
    failed = []
    for spark, iceberg in SETS:
        if given.only is not None and given.only != spark:
            continue
        name = f"Spark {spark or 'of the environment'}, Iceberg {iceberg}"
        print(f"== {name}", flush=True)
        started = time.monotonic()
        environment = {**os.environ, "STREAMSQL_ICEBERG": iceberg}
        if spark:
            environment["PYTHONPATH"] = os.pathsep.join(
                [str(_fetched(spark)), os.environ.get("PYTHONPATH", "")]
            ).rstrip(os.pathsep)
        command = [sys.executable, "-m", "pytest", "-q", "-m", "", "-n", "2", "--dist", "loadfile"]
        code = subprocess.run(
            [*command, *given.tests], cwd=ROOT, env=environment, check=False
        ).returncode
        print(f"== {name}: exit {code} after {time.monotonic() - started:.0f} s", flush=True)
        failed += [name] if code else []
    print("failed: " + ("; ".join(failed) or "none"))
    return 1 if failed else 0


def _fetched(version: str) -> Path:
    """The folder with PySpark of a version, without what it depends on."""
    folder = ROOT / "target" / "versions" / f"pyspark-{version}"
    if not folder.is_dir():
        print(f"installing PySpark {version} into {folder} (once)", flush=True)
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
        subprocess.run([*pip, "--target", folder, f"pyspark=={version}"], check=True)
    return folder


if __name__ == "__main__":
    raise SystemExit(main())
