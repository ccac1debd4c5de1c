"""What the tests of connectors share: open one, and look at its records."""

from __future__ import annotations

from collections import Counter

from dbt_streamsql.connectors.options import Options
from dbt_streamsql.connectors.sources.registry import module_of
from dbt_streamsql.connectors.sources.source import (
    AS_READ,
    AT,
    PROBLEM,
    RAW,
    UNSENT,
    end_of,
)
from dbt_streamsql.errors import Place

SPARSE = ([], [UNSENT, AS_READ])
"""What sources whose updates may leave values out give beside."""


def opened(connector, columns=(), reader="", fmt=None, **options):
    """The source that a declaration gives."""
    spec = {"connector": connector, "columns": columns, "reader": reader, "options": options}
    spec |= {"format": fmt, "schema": ""}
    return module_of(connector).source(Options(spec, Place("a_stream")))


def records(source, spark, after, upto, *names):
    """The records of a range as tuples, in the order of their text; `names` picks columns."""
    found = source.read(spark, after, upto)
    columns = [name for name, _ in source.columns(spark)]
    assert found.columns in ([*columns, RAW, AT, PROBLEM, *more] for more in SPARSE)
    kinds = dict(source.columns(spark))
    assert {f.name: f.dataType.simpleString() for f in found.schema if f.name in kinds} == kinds
    return sorted(
        (tuple(row[name] for name in names or columns) for row in found.collect()), key=repr
    )


def problems(source, spark, after, upto):
    """(place, problem) of the records that cannot be read."""
    found = source.read(spark, after, upto)
    bad = found.where(f"`{PROBLEM}` IS NOT NULL").collect()
    columns = [name for name, _ in source.columns(spark)]
    lacking = [row for row in bad if UNSENT in row and row[UNSENT] is not None]
    assert all(row[name] is None for row in lacking for name in row[UNSENT])
    assert all(row[name] is None for row in bad if row not in lacking for name in columns)
    assert all(row[RAW] for row in bad)
    return sorted((row[AT], row[PROBLEM]) for row in bad)


def through(source, spark, *names, after=None, most=1000):
    """All records from a position to the end, barrier by barrier, and the last position.

    Each range is read twice, as it is after a crash.
    """
    total, at = [], after
    for _ in range(most):
        with end_of(source, spark, at) as end:
            if end is None:
                return total, at
            once = records(source, spark, at, end.position, *names)
            # As texts: NaN is not equal to itself.
            assert repr(records(source, spark, at, end.position, *names)) == repr(once)
        if end.records is not None:
            assert (end.records == 0) is (not once)
        source.release(spark, end.position)
        total += once
        at = end.position
    raise AssertionError(f"no end after {most} barriers")


def counted(rows):
    return Counter(map(repr, rows))
