"""What GitHub reads has the form that GitHub asks for, by the schemas that check-jsonschema ships."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import click
import pytest

from dbt_streamsql.cli.serve import DEFAULT_PORT

ROOT = Path(__file__).parents[2]
GITHUB = ROOT / ".github"
CONFIG = GITHUB / "ISSUE_TEMPLATE" / "config.yml"
FORMS = [file for file in (GITHUB / "ISSUE_TEMPLATE").glob("*.yml") if file != CONFIG]


@pytest.mark.skipif(
    not hasattr(click.ParamType, "__class_getitem__"),
    reason="check-jsonschema needs a newer click",
)
@pytest.mark.parametrize(
    ("schema", "files"),
    [
        ("github-workflows", [*(GITHUB / "workflows").glob("*.yml")]),
        ("dependabot", [GITHUB / "dependabot.yml"]),
        ("github-issue-forms", FORMS),
        ("github-issue-config", [CONFIG]),
    ],
)
def test_a_file_that_github_reads_follows_its_schema(schema, files):
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}"]
    done = subprocess.run([*command, *files], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_container_for_development_installs_the_project_and_forwards_the_port_of_the_pages():
    container = json.loads((ROOT / ".devcontainer" / "devcontainer.json").read_text())
    assert container["postCreateCommand"] == "make install"
    assert container["forwardPorts"] == [DEFAULT_PORT]
