"""A container's limits decide how large Spark's driver is."""

from __future__ import annotations

import os

import pytest

from dbt_streamsql.runtime.spark import machine

GIB = 1 << 30


def test_without_limits_it_is_the_machine(tmp_path):
    assert machine.cores(tmp_path) == len(os.sched_getaffinity(0))
    (tmp_path / "cpu.max").write_text("max 100000\n")
    (tmp_path / "memory.max").write_text("max\n")
    assert machine.cores(tmp_path) == len(os.sched_getaffinity(0))
    assert GIB <= machine.driver_memory(tmp_path) <= 8 * GIB


@pytest.mark.parametrize(("quota", "wanted"), [("100000", 1), ("50000", 1)])
def test_a_limit_of_processors_counts(tmp_path, quota, wanted):
    (tmp_path / "cpu.max").write_text(f"{quota} 100000\n")
    assert machine.cores(tmp_path) == wanted


def test_a_limit_above_the_machine_does_not_count(tmp_path):
    (tmp_path / "cpu.max").write_text("6400000 100000\n")
    assert machine.cores(tmp_path) == len(os.sched_getaffinity(0))


@pytest.mark.parametrize(("limit", "wanted"), [(6 * GIB, 3 * GIB // 2), (2 * GIB, GIB)])
def test_a_quarter_of_a_limit_of_memory_is_the_drivers(tmp_path, limit, wanted):
    (tmp_path / "memory.max").write_text(f"{limit}\n")
    assert machine.driver_memory(tmp_path) == wanted
