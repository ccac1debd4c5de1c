"""Eight threads in one run, and two runs on one warehouse."""

from __future__ import annotations

import builtins
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

THREADS = 8


def test_eight_threads_build_eight_models_at_the_same_time(project):
    project.profile({"schema": "shop", "threads": THREADS})
    for number in range(THREADS):
        project.write(
            f"models/m{number}.py",
            f"""
            import builtins

            def model(dbt, session):
                builtins.all_models_run.wait(600)
                return session.sql("select {number} as id")
            """,
        )
    # Nobody passes before all are there.
    builtins.all_models_run = threading.Barrier(THREADS)
    try:
        done = project.dbt("run")
    finally:
        del builtins.all_models_run
    assert done.ok, done.messages
    union = " union all ".join(f"select * from lake.shop.m{n}" for n in range(THREADS))
    assert sorted(project.sql(union)) == [(n,) for n in range(THREADS)]


@pytest.mark.processes
def test_two_runs_on_one_warehouse_do_not_disturb_each_other(project):
    """One in this process, again and again, while another process runs the same models.

    Only the incremental model is each run's own: who adds rows to what another adds to is told so.
    """
    project.profile({"schema": "shop", "threads": 4})
    project.write(
        "models/t.sql", "{{ config(materialized='table') }} select id, id * 2 as v from range(50)"
    )
    project.write("models/v.sql", "select count(*) as n from {{ ref('t') }}")
    project.write(
        "models/i.sql",
        """
        {{ config(materialized='incremental', unique_key='id', alias='i_' ~ var('run', 'here')) }}
        select * from {{ ref('t') }}
        """,
    )
    project.write(
        "models/m.sql",
        """
        {{ config(materialized='materialized_view') }}
        select v % 3 as k, sum(id) as total from {{ ref('t') }} group by v % 3
        """,
    )
    assert project.dbt("run").ok
    root = str(project.root)
    command = [str(Path(sys.executable).with_name("dbt")), "--no-use-colors", "run"]
    folders = ["--project-dir", root, "--profiles-dir", root]
    aside = ["--target-path", f"{root}/target2", "--log-path", f"{root}/logs2"]
    with subprocess.Popen(
        [*command, *folders, *aside, "--vars", "run: there"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "DBT_SEND_ANONYMOUS_USAGE_STATS": "false"},
    ) as other:
        failed = []
        while other.poll() is None:
            done = project.dbt("run")
            if not done.ok:
                failed.append((done.messages, done.error))
        said = other.stdout.read()
    assert other.returncode == 0, said
    assert failed == []
    assert project.sql("select n from lake.shop.v") == [(50,)]
    for own in ("here", "there"):
        assert project.sql(f"select count(*), sum(v) from lake.shop.i_{own}") == [(50, 2450)]
    assert sorted(project.sql("select k, total from lake.shop.m")) == [
        (0, 408),
        (1, 392),
        (2, 425),
    ]
    assert project.host.engine.verify("lake.shop.m") == []
    assert project.host.engine.sweep() == 0
    assert project.tables() == {"t", "v", "i_here", "i_there", "m"}
