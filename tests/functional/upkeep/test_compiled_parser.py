"""A newcomer's environment in which another package has brought the compiled SQL parser."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import version

import pytest

from tests.support.spark_child import paths

pytestmark = pytest.mark.processes


def test_the_compiled_parser_is_refused_with_what_to_do(tmp_path):
    parser = f"sqlglot[c]=={version('sqlglot')}"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(tmp_path)]
    subprocess.run([*pip, "--disable-pip-version-check", parser], check=True)
    env = paths()
    env["PYTHONPATH"] = os.pathsep.join([str(tmp_path), env.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", "import dbt_streamsql.compiler.compile"],
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    said = done.stderr.splitlines()
    assert done.returncode == 1
    assert any("[STREAMSQL.PARSER_COMPILED]" in line for line in said), done.stderr[-2000:]
    assert any("pip uninstall sqlglotc" in line for line in said)
