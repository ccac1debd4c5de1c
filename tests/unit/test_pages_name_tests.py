"""A test that a page names is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [*sorted((ROOT / "docs").rglob("*.md")), *ROOT.glob("*.md")]
_TEST = re.compile(r"tests/[\w./]+\.(?:py|yml)")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_test_that_a_page_names_is_there(page):
    named = set(_TEST.findall(page.read_text(encoding="utf-8")))
    assert [name for name in sorted(named) if not (ROOT / name).is_file()] == []
