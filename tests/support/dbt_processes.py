"""dbt commands in processes of their own, which may die."""

from __future__ import annotations

import sys

from tests.support import patience
from tests.support.spark_child import paths

DBT = "from dbt.cli.main import cli; cli()"


DBT_THAT_DIES = """
import os, signal, sys
from dbt_streamsql.runtime.core import failpoints

step = sys.argv.pop(1)

def observe(name, moment):
    if (name, moment) == (step, "after"):
        os.kill(os.getpid(), signal.SIGKILL)

failpoints.observers.append(observe)
"""


def run(project, *command):
    """The exit code of a command, and what it said."""
    done = patience.run(
        [sys.executable, *command, "--project-dir", project.root, "--profiles-dir", project.root],
        cwd=project.root,
        env={**paths(), "DBT_SEND_ANONYMOUS_USAGE_STATS": "false"},
    )
    return done.returncode, done.stdout + done.stderr
