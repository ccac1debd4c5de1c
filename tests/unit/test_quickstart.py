"""The quickstart without Spark: what it writes, and the processes that it leaves behind."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from dbt_streamsql.cli import main
from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.quickstart import Background, write_project
from tests.support import patience

SAYS = "import os, time; print(sorted(k for k in os.environ if 'TARGET' in k or k == 'STREAMSQL_STORE')"


def test_the_project_is_written_once_and_kept_when_it_is_edited(tmp_path: Path) -> None:
    folder = tmp_path / "my shop"
    assert write_project(folder) > 10
    assert yaml.safe_load((folder / "profiles.yml").read_text())["shop"]["target"] == "dev"
    (folder / "models" / "revenue.sql").write_text("select 1")
    assert write_project(folder) == 0
    assert (folder / "models" / "revenue.sql").read_text() == "select 1"


@pytest.mark.parametrize("name", ["dbt_project.yml", "notes.txt"])
def test_a_folder_with_something_else_is_left_alone(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("name: shop\n")
    with pytest.raises(StreamSqlError) as refused:
        write_project(tmp_path)
    assert refused.value.code == "CONFIG_INVALID"
    assert [file.name for file in tmp_path.iterdir()] == [name]
    done = CliRunner().invoke(main, ["quickstart", str(tmp_path), "--stop"])
    assert (done.exit_code, "no quickstart has been started" in done.output) == (2, True)


def test_a_process_goes_on_until_it_is_stopped_and_is_of_its_own_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DBT_TARGET", "prod")
    monkeypatch.setenv("STREAMSQL_STORE", "/elsewhere")
    background = Background(tmp_path)
    command = [sys.executable, "-c", f"{SAYS}, flush=True); time.sleep(600)"]
    started = background.start("runner", command, 7, MY_TARGET="x")
    assert background.find("runner") == started
    patience.until(
        lambda: background.log("runner").read_text(), int(started.identity.split("-")[0])
    )
    assert background.log("runner").read_text() == "['MY_TARGET']\n"
    assert "does not get ready" in str(background.problem("runner"))
    assert Background(tmp_path).stop("runner")
    assert background.find("runner") is None
    assert not background.stop("runner")


def test_the_end_of_a_process_is_told_with_its_last_lines(tmp_path: Path) -> None:
    background = Background(tmp_path)
    background.start("page", [sys.executable, "-c", "raise SystemExit('no port is free')"])
    patience.until(lambda: background.find("page") is None)
    told = str(background.problem("page"))
    assert "the page has ended" in told
    assert "no port is free" in told


def test_only_one_quickstart_starts_a_project_at_a_time(tmp_path: Path) -> None:
    with Background(tmp_path).starting() as first, Background(tmp_path).starting() as second:
        assert (first, second) == (True, False)
