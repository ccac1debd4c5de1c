"""The page of error codes has each code once, with its meaning."""

from __future__ import annotations

import re
from pathlib import Path

from dbt_streamsql.errors import CODES

PAGE = Path(__file__).parents[2] / "docs" / "errors.md"
ROW = re.compile(r"^\| `([A-Z_]+)` \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)


def test_each_code_is_explained_once_and_in_the_words_of_the_program():
    rows = ROW.findall(PAGE.read_text(encoding="utf-8"))
    assert sorted(code for code, _, _ in rows) == sorted(CODES)
    assert {code: meaning for code, meaning, _ in rows} == CODES
