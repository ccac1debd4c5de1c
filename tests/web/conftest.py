"""A store that has run for a while, and a real Chromium."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dbt_streamsql.meta import MetaStore, open_store
from tests.support.histories import Clock, tell
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
def address(store: MetaStore) -> Iterator[str]:
    """Where its pages are served, to everybody."""
    with served(store) as url:
        yield f"{url}/ui/"


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
