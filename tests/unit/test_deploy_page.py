"""The examples of docs/deploy.md that need no scheduler or cluster to be read."""

from __future__ import annotations

import ast
import configparser
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from dbt_streamsql.cli import main
from dbt_streamsql.runtime.spark import jars

PAGE = Path(__file__).parents[2] / "docs" / "deploy.md"
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE)


def of(language: str, word: str = "") -> str:
    """The block of this language with this word."""
    (found,) = [text for name, text in BLOCKS if name == language and word in text]
    return found


def manifest(kind: str) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load(of("yaml", f"kind: {kind}\n"))
    return document


def pod(kind: str) -> dict[str, Any]:
    spec = manifest(kind)["spec"]
    template: dict[str, Any] = spec.get("jobTemplate", {"spec": spec})["spec"]["template"]
    return template["spec"]


def test_systemd_stops_the_runner_alone_and_starts_it_again() -> None:
    unit = configparser.ConfigParser(interpolation=None)
    unit.optionxform = str  # type: ignore[method-assign,assignment]
    unit.read_string(of("ini"))
    service = unit["Service"]
    assert (service["KillMode"], service["Restart"]) == ("mixed", "on-failure")
    assert " run " in service["ExecStart"]


def test_python_is_python() -> None:
    for name, text in BLOCKS:
        if name == "python":
            ast.parse(text)


@pytest.mark.parametrize("kind", ["Deployment", "CronJob"])
def test_a_pod_stops_after_its_epoch_and_runs_a_command_of_the_image(kind: str) -> None:
    found = pod(kind)
    assert found["terminationGracePeriodSeconds"] >= 600
    (container,) = found["containers"]
    assert container["command"][0] in ("streamsql", "dbt")
    assert container["resources"]["limits"]["memory"]
    assert f"--uid {found['securityContext']['runAsUser']} " in of("dockerfile")


def test_one_run_at_a_time_and_one_standby() -> None:
    assert manifest("CronJob")["spec"]["concurrencyPolicy"] == "Forbid"
    deployment = manifest("Deployment")["spec"]
    assert deployment["replicas"] == 2
    assert deployment["selector"]["matchLabels"] == deployment["template"]["metadata"]["labels"]


def test_the_step_of_the_image_gets_the_jars_of_its_connectors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (step,) = re.findall(r"^RUN streamsql (spark jars .+)$", of("dockerfile"), re.MULTILINE)
    monkeypatch.setenv("STREAMSQL_CACHE", str(tmp_path))
    wanted = jars.wanted(step.split()[2:])
    assert len(wanted) > len(jars.embedded_jars())
    (tmp_path / "jars").mkdir()
    monkeypatch.setattr(jars, "_sha256", lambda file: file.read_text())
    for jar in wanted:
        (tmp_path / "jars" / jar.file_name).write_text(jar.sha256)
    done = CliRunner().invoke(main, step.split())
    assert done.exit_code == 0, done.output
    assert done.output == f"{len(wanted)} jars, 0 MB, in {tmp_path / 'jars'}\n"
    refused = CliRunner().invoke(main, ["spark", "jars", "s4"])
    assert refused.exit_code == 2
    assert "'s4' is not one of" in refused.output
