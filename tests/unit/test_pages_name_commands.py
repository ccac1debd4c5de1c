"""Commands, options, methods of the engine and keys of profiles that the pages name exist."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import yaml

from dbt_streamsql import Engine
from dbt_streamsql.adapter.profile.profiles import StreamSqlCredentials
from dbt_streamsql.cli import main

ROOT = Path(__file__).parents[2]
PAGES = [*sorted((ROOT / "docs").glob("*.md")), ROOT / "README.md"]

_FENCED = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
_INLINE = re.compile(r"`([^`\n]+)`")
_COMMAND = re.compile(r"(?<![\w./-])streamsql (?!_)([^\n|;&#`)]+)")
_OPTION = re.compile(r"--?[a-z][\w-]*")


def _named(text: str) -> Iterator[str]:
    """What follows `streamsql` in code: in fenced blocks, and between backticks."""
    blocks = _FENCED.findall(text)
    for code in (*blocks, *_INLINE.findall(_FENCED.sub("", text))):
        yield from _COMMAND.findall(code.replace("\\\n", " "))


def _problem(words: str) -> str | None:
    """What is wrong with `run --once`, or None."""
    command: click.Command = main
    rest = [word.strip("\"'[](),") for word in words.split()]
    while isinstance(command, click.Group) and rest and re.fullmatch(r"[a-z-]+", rest[0]):
        word = rest.pop(0)
        if word.startswith("-"):
            break
        if word not in command.commands:
            return f"no command {word}"
        command = command.commands[word]
    options = {name for each in command.params for name in (*each.opts, *each.secondary_opts)}
    options.add("--help")
    given = [_OPTION.fullmatch(word.partition("=")[0]) for word in rest]
    missing = [found[0] for found in given if found and found[0] not in options]
    return f"no option {', '.join(missing)}" if missing else None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_command_that_a_page_names_exists_with_its_options(page: Path) -> None:
    wrong = [
        f"streamsql {words.strip()}: {problem}"
        for words in _named(page.read_text(encoding="utf-8"))
        if (problem := _problem(words))
    ]
    assert wrong == []


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ("run --once --target ci", None),
        ("run --twice", "no option --twice"),
        ("meta rebuild --dry-run", None),
        ("meta destroy", "no command destroy"),
        ("wait --for=lake.shop.t --lag 0s", None),
    ],
)
def test_a_wrong_command_is_found(words: str, problem: str | None) -> None:
    assert _problem(words) == problem


_METHOD = re.compile(r"\b(?:eng|engine|Engine)\.([a-z]\w*)\(|`Engine\.([a-z]\w*)")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_method_of_the_engine_that_a_page_names_exists(page: Path) -> None:
    named = {one or other for one, other in _METHOD.findall(page.read_text(encoding="utf-8"))}
    assert [name for name in sorted(named) if not hasattr(Engine, name)] == []


_YAML = re.compile(r"^```ya?ml\n(.*?)^```", re.DOTALL | re.MULTILINE)


def _outputs(found: object) -> Iterator[dict[str, object]]:
    """The outputs of this adapter, however deep in a document."""
    if isinstance(found, dict):
        if found.get("type") == "streamsql":
            yield found
        for each in found.values():
            yield from _outputs(each)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_yaml_of_a_page_is_yaml_and_its_profiles_have_known_keys(page: Path) -> None:
    known = {*StreamSqlCredentials.__dataclass_fields__, "type", "threads", "catalog"}
    for text in _YAML.findall(page.read_text(encoding="utf-8")):
        for document in yaml.safe_load_all(text):
            unknown = [key for output in _outputs(document) for key in output if key not in known]
            assert unknown == []
