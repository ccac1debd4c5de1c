"""The other ways to Spark: a Spark Connect server with a token, the master of a cluster, and native
code in the embedded one.

A process can be a client of one kind only, so each way has a test run of its own, with the same
tests that the embedded session has in this one.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
import yaml

from tests.support import patience, spark_servers, spark_way

pytestmark = pytest.mark.processes

ROOT = Path(__file__).resolve().parents[3]
DBT = "tests/functional/dbt"
VIEWS = f"{DBT}/test_dbt_materialized_view.py"
READ_ONLY = "tests/functional/views/test_read_only_sources.py"
SHARES = {
    "views": (
        f"{VIEWS}::test_a_build_makes_the_views_and_the_next_run_follows_the_changes",
        f"{READ_ONLY}::test_a_source_that_may_only_be_read_stops_no_run_and_is_told_once[rest]",
    ),
    "shop": (
        f"{DBT}/test_examples.py::test_the_shop_is_kept_up_from_changes_and_passes_its_tests",
    ),
    "dbt": (
        "tests/functional/views/test_types.py",
        f"{DBT}/test_incremental_and_python.py::test_a_python_model_reads_and_is_read_like_any_other",
        *(
            f"tests/conformance/test_units.py::Test_{unit}"
            for unit in (
                "basic_test_base__BaseSimpleMaterializations",
                "basic_test_incremental__BaseIncremental",
                "basic_test_snapshot_check_cols__BaseSnapshotCheckCols",
            )
        ),
    ),
}


PYTEST = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "")


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("way", ["connect_server", "standalone_master", "native"])
def test_views_the_shop_and_a_share_of_dbts_suite_pass_by_every_way(way, share, request, tmp_path):
    if way == "native":
        chosen = {spark_way.NATIVE: "1"}
    else:
        chosen = {spark_way.VARIABLE: request.getfixturevalue(way)}
    log = tmp_path / "pytest.log"
    with log.open("w") as out:
        try:
            done = patience.run(
                [*PYTEST, *SHARES[share]],
                *spark_servers.pids(),
                cwd=ROOT,
                env={**os.environ, **chosen},
                stdout=out,
                stderr=out,
            )
        except patience.Stuck as stuck:
            pytest.fail(f"{stuck}\n{log.read_text()[-6000:]}")
    told = log.read_text()
    assert done.returncode == 0, told[-6000:]
    assert "skipped" not in told.splitlines()[-1]


@pytest.mark.parametrize("wrong", ["token", "port"])
def test_a_server_that_does_not_answer_is_one_clear_error(
    wrong, connect_server, tmp_path, monkeypatch
):
    way = _profile_of(connect_server) | {wrong: {"token": "guessed", "port": 1}[wrong]}
    monkeypatch.setenv("DBT_ENV_SECRET_SPARK_TOKEN", str(way["token"]))
    code, output = _dbt(tmp_path, way, "debug")
    assert code != 0
    assert "[STREAMSQL.CONNECTION]" in output
    assert f"localhost:{way['port']}" in output
    assert "check `host`, `port`, `token`" in output
    assert way["token"] not in output


def test_a_setting_that_only_the_server_can_have_is_refused_by_name(connect_server, tmp_path):
    way = _profile_of(connect_server) | {"spark_properties": {"spark.driver.memory": "9g"}}
    code, output = _dbt(tmp_path, way, "debug")
    assert code != 0
    assert "[STREAMSQL.CONFIG_INVALID]" in output
    assert "spark.driver.memory" in output


def _profile_of(address: str) -> dict[str, object]:
    patch = pytest.MonkeyPatch()
    with patch.context() as context:
        context.setenv(spark_way.VARIABLE, address)
        return spark_way.profile()


def _dbt(folder: Path, way: dict[str, object], *command: str) -> tuple[int, str]:
    (folder / "dbt_project.yml").write_text("name: shop\nversion: '1.0'\nprofile: shop\n")
    output = {"type": "streamsql", "schema": "shop", "warehouse": str(folder / "warehouse"), **way}
    profiles = {"shop": {"target": "dev", "outputs": {"dev": output}}}
    (folder / "profiles.yml").write_text(yaml.safe_dump(profiles))
    done = patience.run(
        [Path(sys.executable).with_name("dbt"), *command],
        *spark_servers.pids(),
        cwd=folder,
        env={**os.environ, spark_way.FROM_ENVIRONMENT: str(way["token"])},
    )
    return done.returncode, done.stdout + done.stderr
