"""The formulas of the rules hold on random bags with NULLs, duplicates and simultaneous changes."""

from __future__ import annotations

import doctest
from random import Random

from tests.oracle import zset as z
from tests.support.seeds import for_many_seeds


def bag(random, rows):
    values = (None, 0, 1, 2)
    return z.zset((random.choice(values), random.choice(values)) for _ in range(rows))


def change(random, old):
    rows = [row for row, weight in old.items() for _ in range(weight)]
    random.shuffle(rows)
    gone = z.zset(rows[: random.randint(0, 4)])
    return z.subtract(bag(random, random.randint(0, 4)), gone)


def equal(left, right):
    return left[0] is not None and left[0] == right[0]


def third(left, right):
    return left[0] is not None and left[0] == right[1]


def key(row):
    return row[:1]


def totals(rows):
    """COUNT(*), COUNT(x), SUM(x), MIN(x), MAX(x) of the second column."""
    values = [row[1] for row, weight in rows for _ in range(weight) if row[1] is not None]
    count = sum(weight for _, weight in rows)
    if not values:
        return (count, 0, None, None, None)
    return (count, len(values), sum(values), min(values), max(values))


def test_the_examples_in_the_docstrings_hold():
    assert doctest.testmod(z).failed == 0


@for_many_seeds
def test_the_change_of_a_join_is_the_telescoping_sum(seed):
    random = Random(seed)
    olds = [bag(random, 6) for _ in range(3)]
    deltas = [change(random, old) for old in olds]
    news = [z.add(pair) for pair in zip(olds, deltas, strict=True)]

    def all_three(a, b, c):
        return z.join(z.join(a, b, equal), c, third)

    expected = z.subtract(all_three(*news), all_three(*olds))
    terms = [
        all_three(deltas[0], olds[1], olds[2]),
        all_three(news[0], deltas[1], olds[2]),
        all_three(news[0], news[1], deltas[2]),
    ]
    assert z.add(terms) == expected


@for_many_seeds
def test_a_self_join_is_two_inputs_with_one_change(seed):
    random = Random(seed)
    old = bag(random, 6)
    delta = change(random, old)
    new = z.add([old, delta])
    expected = z.subtract(z.join(new, new, equal), z.join(old, old, equal))
    assert z.add([z.join(delta, old, equal), z.join(new, delta, equal)]) == expected


@for_many_seeds
def test_the_change_of_a_grouping_is_that_of_the_touched_groups(seed):
    random = Random(seed)
    old = bag(random, 8)
    delta = change(random, old)
    new = z.add([old, delta])
    touched = {key(row) for row in delta}
    expected = z.subtract(z.group(new, key, totals), z.group(old, key, totals))
    recomputed = z.subtract(
        z.group(z.restrict(new, key, touched), key, totals),
        z.group(z.restrict(old, key, touched), key, totals),
    )
    assert recomputed == expected


@for_many_seeds
def test_counts_and_sums_fold(seed):
    """new = old + change, a group lives while its count is positive, a sum without values is NULL."""
    random = Random(seed)
    old = bag(random, 8)
    delta = change(random, old)

    def parts(rows):
        return {
            at: (
                sum(w for row, w in rows.items() if key(row) == at),
                sum(w for row, w in rows.items() if key(row) == at and row[1] is not None),
                sum(
                    w * row[1] for row, w in rows.items() if key(row) == at and row[1] is not None
                ),
            )
            for at in {key(row) for row in rows}
        }

    stored, moved = parts(old), parts(delta)
    nothing = (0, 0, 0)
    folded = {
        at: tuple(
            a + b for a, b in zip(stored.get(at, nothing), moved.get(at, nothing), strict=True)
        )
        for at in stored.keys() | moved.keys()
    }
    visible = {
        (*at, count, values, total if values else None)
        for at, (count, values, total) in folded.items()
        if count
    }
    expected = z.group(z.add([old, delta]), key, totals)
    assert visible == {row[:4] for row in expected}
