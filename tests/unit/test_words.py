"""Messages, help texts, logs, docs and docstrings use the words of dbt, Spark and Materialize."""

from __future__ import annotations

import ast
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.product import root

AVOIDED = re.compile(r"\b(anew|told|tells|nobody|somebody|whoever)\b", re.IGNORECASE)
"""Write what does what: rebuilt, reported, recorded, another process."""

_NAME = re.compile(r"`[^`]*`")
PAGES = [*sorted((root().parent / "docs").glob("*.md")), root().parent / "README.md"]


def _texts(path: Path) -> Iterator[str]:
    """All strings and comments of a module. A single word is a name."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield node.value
    with path.open("rb") as file:
        yield from (
            token.string
            for token in tokenize.tokenize(file.readline)
            if token.type == tokenize.COMMENT
        )


@pytest.mark.parametrize("path", sorted(root().rglob("*.py")), ids=lambda path: path.stem)
def test_texts_of_the_package_have_plain_words(path: Path) -> None:
    texts = (_NAME.sub("", text) for text in _texts(path))
    assert [text for text in texts if AVOIDED.search(text)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_pages_have_plain_words(page: Path) -> None:
    lines = _NAME.sub("", page.read_text(encoding="utf-8")).splitlines()
    assert [line for line in lines if AVOIDED.search(line)] == []
