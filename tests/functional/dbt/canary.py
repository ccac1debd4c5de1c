"""Run dbt commands in this process, then print every process argument that holds a secret.

Arguments: the project's folder, then one command a line on standard input.
"""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from pathlib import Path

from dbt.cli.main import dbtRunner


def main() -> None:
    folders = ["--project-dir", sys.argv[1], "--profiles-dir", sys.argv[1]]
    for line in sys.stdin.read().splitlines():
        done = dbtRunner().invoke(["--log-level", "debug", *line.split(), *folders])
        print("canary:", line, "->", done.success)
        if done.exception is not None:
            traceback.print_exception(done.exception)
    secrets = [v for k, v in os.environ.items() if k.startswith("DBT_ENV_SECRET_")]
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            line = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if any(secret in line for secret in secrets):
                print("canary: in the list of processes:", line[:200])


main()
