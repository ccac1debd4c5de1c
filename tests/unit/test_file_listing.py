"""Versions of tables of files: which files came since one, by numbers alone."""

from __future__ import annotations

import random

import pytest

from dbt_streamsql.storage.inputs.file_listing import FRESH, File, Listing

_TIMES = 1_700_000_000_000


def _file(number, at=None, size=10):
    return File(f"file:/data/part-{number}.csv", size, _TIMES + 7 * (number if at is None else at))


def _listing(files, table=5):
    return Listing.of(table, files)


FILES = [_file(number) for number in range(60)]


@pytest.mark.parametrize("came", [1, 2, 17, 59])
def test_the_newest_files_are_told(came):
    old = _listing(FILES[: 60 - came]).number
    assert _listing(FILES).came(old) == tuple(FILES[60 - came :])


def test_without_news_nothing_came_and_from_no_files_all_did():
    assert _listing(FILES).came(_listing(FILES).number) == ()
    assert _listing(FILES).came(_listing([]).number) == tuple(FILES)
    assert _listing([]).number is None


def test_the_order_in_which_files_are_listed_does_not_matter():
    mixed = random.Random(1).sample(FILES, len(FILES))
    assert _listing(mixed).number == _listing(FILES).number


def test_files_that_kept_their_old_times_are_told():
    old = _listing(FILES[:10] + FILES[40:]).number
    assert _listing(FILES).came(old) == tuple(FILES[10:40])


@pytest.mark.parametrize("seed", range(20))
def test_files_that_are_seen_later_than_newer_ones_are_told(seed):
    draw = random.Random(seed)
    cut = draw.randrange(16, 55)
    late = draw.sample(FILES[cut - 16 : cut], draw.randrange(1, 9))
    came = {*late, *FILES[cut:]}
    old = _listing([file for file in FILES if file not in came]).number
    assert set(_listing(FILES).came(old)) == came


def test_times_may_be_equal():
    files = [_file(number, at=number // 5) for number in range(30)]
    came = {files[number] for number in (15, 17, 18, 21, 25, 26, 29, 20, 22, 23, 24, 27, 28)}
    old = _listing([file for file in files if file not in came]).number
    assert set(_listing(files).came(old)) == came


@pytest.mark.parametrize(
    "change",
    [
        lambda files: files[1:],
        lambda files: files[:-1],
        lambda files: [*files[:30], *files[31:]],
        lambda files: [_file(0, size=11), *files[1:]],
        lambda files: [_file(0, at=1), *files[1:]],
        lambda files: [*files[1:], _file(70), _file(71)],
        lambda files: [],
    ],
)
def test_a_file_that_went_or_was_rewritten_makes_the_version_lost(change):
    old = _listing(FILES).number
    assert _listing(change(FILES)).came(old) is None


def test_a_table_that_was_altered_has_lost_its_versions():
    old = _listing(FILES, table=5).number
    assert _listing(FILES, table=6).came(old) is None


def test_far_apart_files_of_old_times_are_not_guessed():
    old = _listing([*FILES[:5], *FILES[6:30], *FILES[31:]]).number
    assert _listing(FILES).came(old) is None


def test_a_version_with_a_file_that_is_too_new_says_so_and_is_the_same_beside_that():
    listing = _listing([*FILES, File("file:/data/new.csv", 1, _TIMES + 60_000)])
    now = _TIMES + 61_000
    assert listing.number_at(now) == listing.number | FRESH
    assert listing.number_at(now + 1001) == listing.number
    assert listing.came(listing.number_at(now)) == ()
    assert 0 <= listing.number_at(now) < 1 << 63


def test_times_that_are_no_whole_seconds_settle_soon():
    listing = _listing([File("file:/data/new.csv", 1, _TIMES + 1)])
    assert listing.number_at(_TIMES + 50) != listing.number
    assert listing.number_at(_TIMES + 101) == listing.number
