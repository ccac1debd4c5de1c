"""The limits by which an engine chooses between ways that lead to the same rows."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Tuning:
    """From where on one way is better than another. Results do not depend on it, only what they
    cost: the defaults are what was measured, and tests set others to go the rarer ways."""

    driver_rows: int = 100_000
    """Changed rows or groups up to which the driver writes; -1: it never does. A view of which
    more are others than its query gives is written anew."""

    driver_bytes: int = 128 << 20
    """Bytes in files up to which the changes of a view's inputs come to the driver."""

    small_table: int = 100_000
    """Rows up to which a table is rewritten whole (one job instead of several); -1: none is."""

    compacted_above: int = 100_000
    """Rows above which a table is compacted when it is worn; smaller ones are written anew."""

    small_files: int = 16
    """Files beyond those that the size of a table warrants, from which on it is worn: every epoch
    adds one."""

    many_files: int = 32
    """Data files above which a small view is written anew instead of gaining another one."""

    barriers_together: int = 100
    """Barriers that are let go together, unless the oldest of them has been due for a day."""

    guarded_rows: int = 100_000
    """Rows of the changed inputs up to which nothing is refreshed in full for cost: both ways are
    equally quick. Beside more rows of all inputs a change that meets too many is given up."""

    compared_rows: int = 1_000_000
    """Rows of all inputs, and of the view, up to which its query may be computed anew and compared
    with what is stored; -1: none is."""

    compared_bytes: int = 64 << 20
    """The same of the files of what is stored."""

    held_rows: int = 200_000
    """Rows of a view up to which they are kept in the process and compared there; -1: none are."""

    held_bytes: int = 256 << 20
    """The bytes of all views that are kept."""

    read_alone: int = 2
    """Views that read a version of an input as it is stored, before it is kept for the others of
    an epoch, which compute their queries over it; at most `compared_rows` and `compared_bytes`."""

    comparing: float = 1.0
    """How many times dearer that counts than it looks; 0: it is done wherever it may be."""

    parallel: int = 4
    """Views of one level that run side by side."""

    broadcast_rows: int = 500_000
    """Changed rows above which the hints to broadcast a change are dropped (or `driver_bytes`)."""

    big_rows: int = 1_000_000
    """Rows from which on a table is read once for its change and for what other changes meet."""

    single_rows: int = 20_000
    """Changed rows up to which one task reads them."""

    idle_readers: int = 2_000
    """Allocators of Iceberg's readers that are not worth the time that it takes to close them."""
