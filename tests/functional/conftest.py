"""dbt projects in a temporary folder, run in this process so that all share one Spark."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result
from dbt.adapters.factory import get_adapter_by_type
from dbt.cli.main import dbtRunner

from dbt_streamsql.cli import main
from tests.support import spark_way
from tests.support.followed_postgres import database, followed, port, sql  # noqa: F401 - fixtures


@dataclass
class Outcome:
    """What one dbt command did: `ok` is its exit code, `messages` by node name, `text` the log,
    `rows` what it showed."""

    ok: bool
    messages: dict[str, str] = field(default_factory=dict)
    statuses: dict[str, str] = field(default_factory=dict)
    text: str = ""
    error: str = ""
    rows: list[tuple[Any, ...]] = field(default_factory=list)


class Project:
    """A dbt project: write files, run commands, look at the tables."""

    def __init__(self, root: Path, **profile: Any) -> None:
        self.root = root
        way = {"warehouse": str(root / "warehouse"), **spark_way.profile()}
        self.profile({"schema": "shop", "threads": 2, **way, **profile})
        self.write("dbt_project.yml", "name: shop\nversion: '1.0'\nprofile: shop\n")

    def profile(self, output: dict[str, Any]) -> None:
        outputs = {"dev": {"type": "streamsql", **output}}
        self.write("profiles.yml", yaml.safe_dump({"shop": {"target": "dev", "outputs": outputs}}))

    def write(self, name: str, text: str) -> None:
        file = self.root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(dedent(text), encoding="utf-8")

    def remove(self, name: str) -> None:
        (self.root / name).unlink()

    def dbt(self, *arguments: str) -> Outcome:
        lines: list[str] = []
        runner = dbtRunner(callbacks=[lambda event: lines.append(event.info.msg)])
        folders = ["--project-dir", str(self.root), "--profiles-dir", str(self.root)]
        flags = ["--no-use-colors", "--no-send-anonymous-usage-stats", "--quiet"]
        done = runner.invoke([*flags, *arguments, *folders])
        outcome = Outcome(done.success, text="\n".join(lines), error=str(done.exception or ""))
        results = getattr(done.result, "results", None) or []
        for result in (item for item in results if hasattr(item, "node")):
            outcome.messages[result.node.name] = str(result.message)
            outcome.statuses[result.node.name] = str(result.status)
            if getattr(result, "agate_table", None) is not None:
                outcome.rows = [tuple(row) for row in result.agate_table.rows]
        return outcome

    def show(self, query: str, *arguments: str) -> list[tuple[Any, ...]]:
        """The rows that `dbt show` has for a query."""
        done = self.dbt("show", "--inline", query, "--limit", "99", *arguments)
        assert done.ok, done.error or done.messages
        return done.rows

    def streamsql(self, *arguments: str) -> Result:
        """Run the command `streamsql` on the project's profile."""
        folders = ["--project-dir", str(self.root), "--profiles-dir", str(self.root)]
        return CliRunner().invoke(main, [*arguments, *folders])

    def sql(self, text: str) -> list[tuple[Any, ...]]:
        """Rows of a query in a session of its own over the project's catalog."""
        session = self.host.acquire()
        return [tuple(row) for row in session.sql(text).collect()]

    @property
    def host(self) -> Any:
        return get_adapter_by_type("streamsql").host

    def tables(self) -> set[str]:
        found = self.sql("SHOW TABLES IN lake.shop") + self.sql("SHOW VIEWS IN lake.shop")
        return {row[1] for row in found}

    def snapshots(self, table: str) -> int:
        return self.sql(f"SELECT count(*) FROM lake.shop.{table}.snapshots")[0][0]

    def json(self, name: str) -> Any:
        return json.loads((self.root / "target" / name).read_text())


@pytest.fixture
def project(tmp_path, spark) -> Project:
    """An empty dbt project with a warehouse of its own.

    `spark`: what starts first in a process decides what its Java machine can read.
    """
    return Project(tmp_path)


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 4 MiB; needs the right to mount one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("this user may not mount a small file system")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)  # noqa: S607 - where it is differs
