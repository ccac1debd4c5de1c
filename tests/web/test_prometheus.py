"""A real Prometheus that scrapes a service and follows the alerts of the package."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from dbt_streamsql.cache import cache_folder
from dbt_streamsql.meta import MetaStore
from dbt_streamsql.meta.model.freshness import Freshness
from dbt_streamsql.web import everything
from scripts.get_prometheus import programs
from tests.support.histories import REPORT, TOP, Clock, Story
from tests.support.spark_servers import free_port
from tests.web.service import served

pytestmark = pytest.mark.processes
TOKEN = "of-the-scrape"  # noqa: S105 - made up


@pytest.fixture
def prometheus() -> str:
    return _program("prometheus")


def _program(name: str) -> str:
    found = programs(cache_folder()).get(name)
    if found is None:
        pytest.skip(f"no {name}: `make prometheus` fetches it on Debian and Ubuntu")
    return found


@dataclass(frozen=True)
class Scraping:
    """A Prometheus at work."""

    url: str

    def ask(self, path: str, **asked: str) -> Any:
        answer = httpx.get(f"{self.url}/api/v1/{path}", params=asked)
        return answer.raise_for_status().json()["data"]

    def alerts(self) -> dict[tuple[str, str], str]:
        """The state of each alert that is not quiet, by its name and table."""
        return {
            (each["labels"]["alertname"], each["labels"].get("table", "")): each["state"]
            for each in self.ask("alerts")["alerts"]
        }


@pytest.fixture
def scraping(
    prometheus: str, store: MetaStore, clock: Clock, shipped: Path, tmp_path: Path
) -> Iterator[Scraping]:
    """Prometheus with the files of the package, and a token, against the shop of `histories`."""
    story = Story(store, clock)
    story.promise(TOP, Freshness(warn_after=1.0, error_after=86400.0))
    story.promise(REPORT, Freshness(warn_after=86400.0))
    store.release(story.fence)
    (tmp_path / "token").write_text(TOKEN)
    with served(store, lambda token: everything if token == TOKEN else None) as url:
        job = {
            "job_name": "streamsql",
            "authorization": {"credentials_file": str(tmp_path / "token")},
            "static_configs": [{"targets": [url.removeprefix("http://")]}],
        }
        config = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(shipped / "alerts.yml")],
            "scrape_configs": [job],
        }
        (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(config))
        where = f"127.0.0.1:{free_port()}"
        command = [
            prometheus,
            f"--config.file={tmp_path / 'prometheus.yml'}",
            f"--storage.tsdb.path={tmp_path / 'data'}",
            f"--web.listen-address={where}",
        ]
        with (tmp_path / "log").open("w") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            yield Scraping(f"http://{where}")
        finally:
            process.terminate()
            process.wait()


def _until(holds: Callable[[], bool], told: Callable[[], object], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while True:
        try:
            if holds():
                return
        except httpx.TransportError:
            pass  # it is not up yet
        assert time.monotonic() < end, told()
        time.sleep(0.3)


def test_promtool_accepts_the_alerts(shipped: Path) -> None:
    done = subprocess.run(
        [_program("promtool"), "check", "rules", str(shipped / "alerts.yml")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_prometheus_scrapes_with_a_token_and_a_stale_table_fires_its_alert(
    scraping: Scraping,
) -> None:
    stale = ("StreamSqlTableStale", TOP)
    _until(lambda: scraping.alerts().get(stale) == "firing", lambda: scraping.ask("targets"))
    (up,) = scraping.ask("query", query="up")["result"]
    assert up["value"][1] == "1"
    names = {name for name, _ in scraping.alerts()}
    assert names == {"StreamSqlTableStale"}, "all other tables are fine"
    assert {table for _, table in scraping.alerts()} == {TOP}
    (newest,) = scraping.ask("query", query="streamsql_barrier_newest")["result"]
    assert newest["value"][1] == "14"
