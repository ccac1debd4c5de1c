"""The files around the code: workflows call verbs that there are, notes are those of a version."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from scripts import versions
from scripts.release import notes_of

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda file: file.stem)
def test_a_workflow_calls_verbs_of_the_makefile_and_may_read_only_unless_a_job_says_more(workflow):
    body = yaml.safe_load(workflow.read_text())
    verbs = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    steps = [step for job in body["jobs"].values() for step in job["steps"]]
    called = re.findall(r"make ([a-z -]+)", "\n".join(step.get("run", "") for step in steps))
    assert {verb for words in called for verb in words.split()} <= verbs
    assert body["permissions"] == {"contents": "read"}
    assert all("timeout-minutes" in job for job in body["jobs"].values())


def test_the_page_shows_the_version_sets_that_are_run_and_every_night_runs_each():
    assert versions.table() in (ROOT / "docs" / "profile.md").read_text()
    nightly = yaml.safe_load((ROOT / ".github" / "workflows" / "nightly.yml").read_text())
    every_night = nightly["jobs"]["sets"]["strategy"]["matrix"]["set"]
    assert every_night == [found.name for found in versions.SETS if found.tests]
    for found in versions.SETS:
        assert all((ROOT / part).exists() for part in found.tests)


def test_a_commit_is_checked_by_the_tools_of_make_check():
    makefile = (ROOT / "Makefile").read_text()
    recipes = re.findall(r"^(?:check|\.venv/\.markdown):.*\n((?:\t.*\n)+)", makefile, re.MULTILINE)
    checked = set(re.findall(r"\$\(BIN\)/([\w-]+)", "".join(recipes)))
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
    assert {hook["entry"].split()[0].removeprefix(".venv/bin/") for hook in hooks} == checked
    assert checked == {"codespell", "lint-imports", "mypy", "pymarkdown", "ruff"}


def test_notes_are_those_of_the_version_or_what_is_unreleased():
    changelog = "# Changelog\n\n## Unreleased\n\n- new\n\n## 0.2.0 (2026-12-01)\n\n- old\n"
    assert notes_of(changelog, "0.2.0") == "- old\n"
    assert notes_of(changelog, "0.3.0") == "- new\n"
