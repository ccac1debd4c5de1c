"""Messages, help texts and logs use the words of dbt, Spark and Materialize."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.product import root

AVOIDED = re.compile(r"\b(anew|told|tells|nobody|somebody|whoever)\b", re.IGNORECASE)
"""Say who does what: rebuilt, reported, recorded, another process."""

_DEFINITIONS = (ast.Module, ast.ClassDef, ast.FunctionDef)


def _texts(tree: ast.Module) -> Iterator[str]:
    """All strings but docstrings, and the docstrings of commands, which are their help."""
    docstrings = set()
    for node in ast.walk(tree):
        if isinstance(node, _DEFINITIONS):
            docstrings |= {
                id(each.value)
                for each in getattr(node, "body", ())
                if isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant)
            }
        if isinstance(node, ast.FunctionDef):
            decorators = " ".join(ast.unparse(each) for each in node.decorator_list)
            if re.search(r"\b(command|group)\(", decorators):
                yield ast.get_docstring(node) or ""
    # A single word is a name.
    yield from (
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and " " in node.value
        and id(node) not in docstrings
    )


@pytest.mark.parametrize("path", sorted(root().rglob("*.py")), ids=lambda path: path.stem)
def test_texts_that_users_see_have_plain_words(path: Path) -> None:
    texts = _texts(ast.parse(path.read_text(encoding="utf-8")))
    assert [text for text in texts if AVOIDED.search(text)] == []
