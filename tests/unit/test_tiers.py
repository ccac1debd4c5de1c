"""What a run has: every list names something, and eight runs have everything."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.nightly import campaigns
from tests.support.tiers import (
    ALL,
    ROOT,
    SLICES,
    TIERS,
    chosen,
    listed,
    lists,
    rotates,
    slice_of,
    tier_of,
)


def test_every_name_in_the_lists_is_a_test():
    parts = [part for tier in TIERS for part in lists()[tier].values()]
    names = [name for part in (*parts, lists()["together"]) for name in part]
    for name in names:
        path, *inside = name.split("::")
        text = (ROOT / path).read_text() if inside else ""
        assert (ROOT / path).exists(), name
        for part in inside:
            assert f" {part.partition('[')[0]}" in text, name


def test_a_name_stands_for_what_it_holds_and_no_more():
    assert listed("tests/a/test_b.py::test_c[1]", ["tests/a"])
    assert listed("tests/a/test_b.py::test_c[1]", ["tests/a/test_b.py::test_c"])
    assert not listed("tests/a/test_b.py::test_cd", ["tests/a/test_b.py::test_c"])
    assert listed("tests/a/test_b.py::test_c[kafka-1]", ["tests/a/test_b.py::test_c[kafka"])
    assert not listed("tests/ab/test_b.py::test_c", ["tests/a"])


def test_eight_slices_have_every_test_once_and_about_as_many_each():
    ids = [f"tests/test_x.py::test_y[{n}]" for n in range(4000)]
    counts = Counter(map(slice_of, ids))
    assert sorted(counts) == list(range(SLICES))
    assert max(counts.values()) < 1.3 * min(counts.values())
    assert slice_of("tests/test_x.py::test_y[0]") == slice_of("tests/test_x.py::test_y[0]")


def test_tests_that_share_what_is_dear_are_in_one_slice():
    name = lists()["together"][0]
    assert len({slice_of(f"{name}::test_{n}") for n in range(20)}) == 1


def test_a_slice_is_given_or_follows_from_the_commit():
    assert chosen("3", "") == 3
    assert chosen(ALL, "ff") is None
    assert chosen("", "a" * 40) == int("a" * 40, 16) % SLICES
    for wrong in ("8", "-1", "every"):
        with pytest.raises(pytest.UsageError, match="give 0 to 7"):
            chosen(wrong, "")


def test_what_a_tier_always_runs_does_not_rotate():
    always = lists()["test"]["always"][0]
    assert not rotates(f"{always}/test_x.py::test_y", "test")
    assert rotates("tests/functional/test_that_nobody_wrote.py::test_y", "test")
    assert not rotates("tests/unit/test_x.py::test_y", "unit")


def test_what_is_long_is_no_part_of_a_newcomers_minute(request):
    assert tier_of(request.node) == "unit"
    request.node.add_marker("long")
    assert tier_of(request.node) == "test"


def test_every_campaign_has_its_minutes_and_a_command():
    found = campaigns()
    assert len({campaign.name for campaign in found}) == len(found)
    verbs = (ROOT / "Makefile").read_text()
    for campaign in found:
        assert campaign.minutes > 0
        verb = campaign.command.partition("make ")[2].split()[0]
        assert f"\n{verb}: " in verbs, campaign.command
