"""The worked examples of the docs run, and print what the docs say they print."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[3] / "docs"
_BLOCK = re.compile(r"(?:`([\w/.]+)`[^`]*?:\n+)?```(\w+)\n(.*?)```", re.DOTALL)
_EXAMPLE = re.compile(r"```python\n(.*?)```\n+```text\n(.*?)```", re.DOTALL)


PAGES = (
    "changelog.md",
    "consistency.md",
    "materialized_view.md",
    "partial_update.md",
    "revision.md",
    "sink.md",
    "state_ttl.md",
)


@pytest.mark.parametrize("page", PAGES)
def test_the_example_of_the_page_prints_what_the_page_says(engine, schema, page):
    found = _EXAMPLE.search((DOCS / page).read_text(encoding="utf-8"))
    assert found is not None
    program, expected = found.groups()

    def show(name: str) -> None:
        for row in engine.sql(f"SELECT * FROM {name} ORDER BY 1").collect():
            print(*row)

    printed = io.StringIO()
    names = {"eng": engine, "shop": f"lake.{schema}", "show": show}
    with contextlib.redirect_stdout(printed):
        exec(compile(program, page, "exec"), names)  # noqa: S102 - our own page
    assert printed.getvalue() == expected


@pytest.mark.parametrize(
    ("page", "heading", "expected"),
    [
        ("materializations.md", "\n## Worked example", 4),
        ("atomic.md", "\n## Worked example", 3),
        ("streaming_table.md", "\n## Worked example", 4),
        ("streaming_table.md", "\n### Event time, step by step", 3),
        ("runner.md", "\n## Worked example", 1),
    ],
)
def test_the_project_of_the_page_does_what_the_page_says(project, page, heading, expected):
    _, _, text = (DOCS / page).read_text(encoding="utf-8").rpartition(heading)
    text, _, _ = text.partition("\n## ")
    rows = ""
    steps = 0
    for name, kind, body in _BLOCK.findall(text):
        if name:
            project.write(name, body)
        elif kind == "console":
            command, _, comment = body.removeprefix("$ ").strip().partition("  # ")
            assert run(project, *command.split()) is (comment != "fails"), command
        elif kind == "sql":
            rows = "".join(" ".join(map(str, row)) + "\n" for row in project.sql(body))
        elif kind == "text":
            assert rows == body
            steps += 1
    assert steps == expected


def run(project, program: str, *arguments: str) -> bool:
    """Whether a command of a page went well."""
    if program == "dbt":
        return project.dbt(*arguments).ok
    return project.streamsql(*arguments).exit_code == 0
