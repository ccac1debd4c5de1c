"""A store that has run for a while, and a real Chromium."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from dbt_streamsql.cli import main
from dbt_streamsql.meta import MetaStore, TableVersion, open_store
from tests.support.histories import CLEAN, TOTALS, USERS, Clock, job, tell
from tests.support.planned import compiled, planned, with_state_table
from tests.web.service import served

CHROMIUM = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, float]:
    """The file of a store that has run for twelve minutes, and when they ended: now."""
    clock = Clock(time.time() - 12 * 60)
    file = tmp_path_factory.mktemp("told") / "streamsql.db"
    opened = open_store(f"sqlite:///{file}", clock=clock)
    opened.release(tell(opened, clock).fence)
    opened.close()
    return file, clock.now


@pytest.fixture
def clock(told: tuple[Path, float]) -> Clock:
    """What the store takes for the time."""
    return Clock(told[1])


@pytest.fixture
def store(told: tuple[Path, float], tmp_path: Path, clock: Clock) -> Iterator[MetaStore]:
    """The shop of `histories`, twelve barriers, a minute each; the runner is not at work."""
    shutil.copy(told[0], tmp_path)
    opened = open_store(f"sqlite:///{tmp_path}/{told[0].name}", clock=clock)
    yield opened
    opened.close()


@pytest.fixture
def with_plan(store: MetaStore, clock: Clock) -> str:
    """A view of the shop that has a plan now, with a state table, and a change of barrier 14."""
    sql = (
        f"SELECT u.city, sum(c.amount) AS amount FROM {CLEAN} c "
        f"JOIN {USERS} u ON u.id = c.id WHERE c.amount > 3 GROUP BY u.city"
    )
    columns = {CLEAN: {"id": "int", "amount": "int"}, USERS: {"id": "int", "city": "string"}}
    plan = compiled(sql, columns, TOTALS)
    join = next(each.id for each in plan.operators if each.name == "inner join")
    plan, table = with_state_table(plan, join)
    fence = store.acquire()
    before = store.latest_all()[TOTALS]
    for changed in range(2):
        number = store.begin(fence, {USERS: 20 + changed}).id
        if not changed:
            store.stage_job(fence, number, planned(job(TOTALS, (CLEAN, USERS)), plan))
            store.stage_job(fence, number, job(table, (CLEAN, USERS)))
        inputs = {**before.inputs, USERS: 20 + changed}
        made = {"mode": "incremental", "snapshot": number, "inputs": inputs, "seconds": 0.75}
        size = {"size": [4321, 98765], "changed": {USERS: 17}}
        store.processed(
            fence,
            TableVersion(number, TOTALS, rows_inserted=6, rows_deleted=5, stats=size, **made),
        )
        store.processed(
            fence, TableVersion(number, table, rows_inserted=9, rows_deleted=8, stats=size, **made)
        )
        store.precommit(fence, number)
        for each in (TOTALS, table):
            store.written(fence, number, each)
        store.commit(fence, number)
    store.release(fence)
    return TOTALS


@pytest.fixture
def address(store: MetaStore) -> Iterator[str]:
    """Where its pages are served, to everybody."""
    with served(store) as url:
        yield f"{url}/ui/"


@pytest.fixture
def shipped(tmp_path: Path) -> Path:
    """A folder with the alerts and the dashboard of the package."""
    done = CliRunner().invoke(main, ["meta", "monitoring", str(tmp_path / "m")])
    assert done.exit_code == 0, done.output
    return tmp_path / "m"


@pytest.fixture(scope="session")
def browser():
    """Headless Chromium of the system; skips where there is none (scripts/get_chromium.py)."""
    from playwright.sync_api import sync_playwright

    found = next(filter(None, map(shutil.which, CHROMIUM)), None)
    if found is None:
        pytest.skip(f"no browser: none of {', '.join(CHROMIUM)} is installed")
    with sync_playwright() as playwright:
        # Chromium's sandbox does not work for root, nor in most containers.
        opened = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield opened
        opened.close()
