"""dbt projects in folders of their own, and the seconds that a command takes in them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dbt_streamsql.runtime.spark.java import find_java, launch_home
from dbt_streamsql.runtime.spark.session import start_settings
from dbt_streamsql.runtime.spark.settings import SessionSettings

BIN = Path(sys.executable).parent


@dataclass(frozen=True)
class Timed:
    """One command: wall seconds, and seconds of the processors spent by dbt itself."""

    wall: float
    cpu: float


class Project:
    """A dbt project in a folder of its own."""

    def __init__(self, folder: Path, output: dict[str, Any]) -> None:
        self.folder = folder
        self._environment = {
            **os.environ,
            "DBT_SEND_ANONYMOUS_USAGE_STATS": "false",
            "JAVA_HOME": str(launch_home(find_java())),
        }
        (folder / "models").mkdir(parents=True, exist_ok=True)
        self.write("dbt_project.yml", "name: p\nversion: '1.0'\nprofile: p\n")
        # JSON is YAML too.
        self.write(
            "profiles.yml", json.dumps({"p": {"target": "dev", "outputs": {"dev": output}}})
        )

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text, encoding="utf-8")

    def run(self, program: str, *arguments: str) -> Timed:
        """A command that must succeed."""
        before, started = os.times(), time.monotonic()
        done = subprocess.run(  # noqa: S603 - our own commands
            [str(BIN / program), *arguments],
            cwd=self.folder,
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
        )
        wall, after = time.monotonic() - started, os.times()
        if done.returncode:
            sys.exit(f"{program} {' '.join(arguments)} failed:\n{done.stdout}{done.stderr}")
        cpu = after.children_user + after.children_system
        return Timed(wall, cpu - before.children_user - before.children_system)


def dbt_spark(warehouse: Path) -> dict[str, Any]:
    """The profile of dbt-spark's own session, with our jars and settings."""
    # SQLite does not make folders.
    warehouse.mkdir(parents=True)
    started = start_settings(SessionSettings(warehouse=str(warehouse)))
    return {
        "type": "spark",
        "method": "session",
        "schema": "p",
        "host": "none",
        "threads": 4,
        "server_side_parameters": started,
    }
