"""The list of planted bugs fits the code as it is."""

from __future__ import annotations

import ast
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from tests.mutants import run
from tests.mutants.planted import BUGS, Bug
from tests.mutants.planting import Text


@cache
def _planted(bug: Bug) -> str:
    return bug.planted()


@cache
def _program(file: Path) -> str:
    return ast.dump(ast.parse(file.read_text(encoding="utf-8")))


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.id)
def test_a_bug_can_be_planted_and_changes_the_program(bug):
    assert ast.dump(ast.parse(_planted(bug))) != _program(bug.file)


def test_there_are_at_least_forty_bugs_each_another_one():
    assert len(BUGS) >= 40
    assert len({bug.id for bug in BUGS}) == len(BUGS)
    assert len({(bug.file, _planted(bug)) for bug in BUGS}) == len(BUGS)


def test_a_bug_is_planted_in_a_copy(tmp_path):
    bug = BUGS[0]
    run.plant(bug, tmp_path)
    copy = tmp_path / bug.file.relative_to(run.ROOT)
    assert copy.read_text(encoding="utf-8") == bug.planted()
    assert bug.file.read_text(encoding="utf-8") != bug.planted()
    assert (tmp_path / "pyproject.toml").exists()


def test_the_check_names_a_bug_that_does_not_fit(capsys, monkeypatch):
    assert run.check(BUGS[:2]) == 0
    assert "2 of 2 can be planted: duckdb 2" in capsys.readouterr().out
    monkeypatch.setattr(run, "BUGS", (BUGS[0], replace(BUGS[1], old=Text("no such"))))
    assert run.main(["--check"]) == 1
    told = capsys.readouterr().out
    assert BUGS[1].id in told
    assert "stands 0 times" in told
