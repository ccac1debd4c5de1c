"""The limits by which an engine chooses between strategies that produce the same rows."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Tuning:
    """Thresholds above which one strategy beats another. They affect cost, never results: the
    defaults are measured, and tests set others to take the rarer strategies."""

    driver_rows: int = 200_000
    """Changed rows or groups up to which the driver writes; -1: it never does. A view with more
    rows that differ from its query is rewritten."""

    driver_bytes: int = 128 << 20
    """Bytes in files up to which the changes of a view's inputs are collected to the driver."""

    fetched_bytes: int = 256 << 20
    """Bytes of memory up to which one result comes to the driver; a bigger one stays in Spark."""

    small_table: int = 100_000
    """Rows up to which a table is rewritten whole (one job instead of several); -1: none is."""

    compacted_above: int = 100_000
    """Rows above which a fragmented table is compacted; smaller ones are rewritten."""

    small_files: int = 16
    """Excess files, beyond those that a table's size warrants, from which on it is fragmented:
    every epoch adds one."""

    many_files: int = 32
    """Data files above which a small view is rewritten instead of gaining another one."""

    barriers_together: int = 100
    """Barriers that are dropped together, unless the oldest of them has been due for a day."""

    guarded_rows: int = 100_000
    """Rows of the changed inputs up to which no view is refreshed in full for cost: both
    strategies are equally fast. With more rows of all inputs, a change that joins too many is
    given up."""

    untried_rows: int = 2_000_000
    """Rows of the changed inputs above which an estimate alone does not choose a full refresh: the
    changes are tried first, unless they are more than a quarter of the rows."""

    compared_rows: int = 1_000_000
    """Rows of all inputs, and of the view, up to which its query may be recomputed and compared
    with the stored rows; -1: none is."""

    compared_bytes: int = 64 << 20
    """The same limit for the bytes of the files of the stored rows."""

    held_rows: int = 200_000
    """Rows of a view up to which they are cached and compared in the process; -1: none are."""

    held_bytes: int = 256 << 20
    """The bytes of all cached views."""

    read_alone: int = 2
    """Views that read a version of an input as stored, before it is cached for the other views of
    an epoch, which compute their queries over it; at most `compared_rows` and `compared_bytes`."""

    comparing: float = 1.0
    """The factor applied to the estimated cost of comparing; 0: done wherever possible."""

    warm_up_seconds: float = 10.0
    """Seconds beyond what was expected that the first runs of a process may take together before
    they count: Java has just started. Not over Spark Connect."""

    parallel: int = 4
    """Views of one level that run in parallel."""

    broadcast_rows: int = 500_000
    """Changed rows above which the hints to broadcast a change are dropped (or `driver_bytes`)."""

    big_rows: int = 1_000_000
    """Rows from which on a table is read once for both its change and other changes' joins, and in
    the ranges of the values that are looked up; declared keys are used for such tables only."""

    storing: float = 2.0
    """The factor applied to the estimated cost of keeping the rows of an inner grouping, window or
    limit in a state table, before it is weighed against what that saves (`state: auto`); 0: all
    are stored, -1: none are."""

    decided_again: int = 16
    """Barriers from one decision of `state: auto` about a view to the next; 0: it is decided when
    the view is built."""

    decoded_bytes: int = 8 << 30
    """Bytes, not compressed, up to which the process decodes the change of a big table, or the
    columns in which rows are looked up, by itself; 0: Spark reads them all."""

    single_rows: int = 20_000
    """Changed rows up to which one task reads them."""

    idle_readers: int = 2_000
    """Allocators of Iceberg's readers that are not worth the time to close them."""
