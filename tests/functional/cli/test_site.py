"""The site of the documentation, built as `make docs` does."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.support import patience

pytestmark = pytest.mark.processes
ROOT = Path(__file__).parents[3]


def test_the_site_is_built_without_a_broken_link_and_shows_every_command(tmp_path):
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = patience.run(command, cwd=ROOT, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    commands = (tmp_path / "reference-cli" / "index.html").read_text()
    for name in ("quickstart", "barrier", "revise", "publish-views"):
        assert f">{name}<" in commands, name
    python = (tmp_path / "reference-python" / "index.html").read_text()
    for name in ("create_materialized_view", "advance", "verify", "changelog"):
        assert f"dbt_streamsql.engine.Engine.{name}" in python, name
