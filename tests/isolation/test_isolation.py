"""Readers beside a writer that is killed and started again see what their level promises."""

from __future__ import annotations

import pytest

from tests.isolation.isolation_campaign import Campaign
from tests.isolation.isolation_checker import Findings
from tests.isolation.isolation_tables import Answer
from tests.isolation.planted_isolation import READERS, WRITERS

READS = 200
SECONDS = 240
"""Within which a planted mistake is to be found."""

GOOD = Answer(0, 4, 4, 2, 2, 2, 4, 2, 2)


@pytest.mark.spark
@pytest.mark.processes
def test_no_level_shows_what_it_forbids_and_the_lowest_shows_what_it_allows(spark, tmp_path):
    campaign = Campaign(spark, tmp_path, READS, seed=1)
    findings = campaign.run()
    print(campaign)
    assert findings.forbidden == {}, str(campaign)
    assert findings.anomalies["read_uncommitted", "fractured"] > 0, str(campaign)
    assert campaign.deaths > 0
    assert all(findings.really[level] for level in findings.reads)


@pytest.mark.spark
@pytest.mark.processes
@pytest.mark.parametrize("planted", [*READERS, *WRITERS])
def test_a_planted_mistake_is_found(spark, tmp_path, planted):
    campaign = Campaign(spark, tmp_path, 100_000, seed=2, planted=planted, seconds=SECONDS)
    findings = campaign.run()
    print(campaign)
    assert findings.forbidden, f"{planted}\n{campaign}"


def test_an_answer_whose_tables_disagree_is_fractured():
    assert not GOOD.fractured
    values = list(vars(GOOD).values())
    for place in range(len(values)):
        assert Answer.of([value + (n == place) for n, value in enumerate(values)]).fractured


def test_what_is_seen_of_a_barrier_that_nobody_committed_is_dirty():
    findings = Findings()
    findings.read("read_committed", GOOD, agrees=True, really=False)
    findings.committed({1, 2})
    assert findings.forbidden == {}
    findings.committed({1})
    assert set(findings.forbidden) == {("read_committed", "dirty")}


def test_an_older_answer_after_a_newer_one_is_a_lost_barrier():
    findings = Findings()
    older = Answer(0, 2, 2, 1, 1, 1, 2, 1, 1)
    for answer in (older, GOOD, older):
        findings.read("repeatable_read", answer, agrees=True, really=False)
    assert set(findings.forbidden) == {("repeatable_read", "lost")}


def test_a_reader_whose_answer_changes_is_told_and_one_that_reads_uncommitted_may_see_more():
    findings = Findings()
    findings.repeated("repeatable_read", GOOD, Answer(0, 6, 6, 3, 3, 3, 6, 3, 3))
    findings.found("read_uncommitted", "fractured", "as it may")
    assert set(findings.forbidden) == {("repeatable_read", "changed")}
