"""dbt's own test suite for adapters, on the one embedded session of the test run."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="class")
def dbt_profile_target(spark, warehouse):
    return {"type": "streamsql", "warehouse": str(warehouse), "threads": 4, "user": "tester"}


@pytest.fixture(scope="class", autouse=True)
def folder():
    """Some units change the folder of the process."""
    before = Path.cwd()
    yield
    os.chdir(before)
