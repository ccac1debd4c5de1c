"""The list of planted bugs fits the code as it is."""

from __future__ import annotations

import ast

import pytest

from tests.mutants.planted import BUGS
from tests.mutants.run import ROOT, plant


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.id)
def test_the_text_of_a_planted_bug_occurs_once(bug):
    text = (ROOT / "dbt_streamsql" / bug.file).read_text()
    assert text.count(bug.old) == 1
    ast.parse(text.replace(bug.old, bug.new))


def test_there_are_at_least_forty_bugs_each_another_one():
    assert len(BUGS) >= 40
    assert len({bug.id for bug in BUGS}) == len(BUGS)
    assert len({(bug.file, bug.old, bug.new) for bug in BUGS}) == len(BUGS)


def test_a_bug_is_planted_in_a_copy(tmp_path):
    bug = BUGS[0]
    plant(bug, tmp_path)
    assert bug.new in (tmp_path / "dbt_streamsql" / bug.file).read_text()
    assert bug.old in (ROOT / "dbt_streamsql" / bug.file).read_text()
