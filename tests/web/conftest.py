"""A store that has run for a while, and a real Chromium."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dbt_streamsql.meta import MetaStore
from tests.support.histories import Clock, tell
from tests.web.service import served

CHROMIUM = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


@pytest.fixture
def clock() -> Clock:
    """Twelve barriers, a minute each, that end now."""
    return Clock(time.time() - 12 * 60)


@pytest.fixture
def store(tmp_path: Path, clock: Clock) -> Iterator[MetaStore]:
    """The shop of `histories`; the runner is not at work."""
    opened = MetaStore.open(f"sqlite:///{tmp_path}/streamsql.db", clock=clock)
    story = tell(opened, clock)
    opened.release(story.fence)
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
