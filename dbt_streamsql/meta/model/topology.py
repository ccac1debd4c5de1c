"""Which job feeds which: cycles, second writers, and the order to run in. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from graphlib import CycleError, TopologicalSorter

from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.meta.model.records import Job

Reads = Mapping[str, Iterable[str]]
"""table -> the tables its job reads"""


def topological_order(reads: Reads) -> list[list[str]]:
    """Levels of tables: each reads only tables of earlier levels, or tables without a job.

    Tables of one level are independent and sorted by name. A cycle raises CYCLE with its path.

    >>> topological_order({"c": ["b", "a"], "b": ["a"], "d": ["a"]})
    [['b', 'd'], ['c']]
    """
    sorter = TopologicalSorter(
        {table: sorted(s for s in set(sources) if s in reads) for table, sources in reads.items()}
    )
    try:
        sorter.prepare()
    except CycleError as error:
        # graphlib lists the path in the direction of the data: each table feeds the next one
        path: list[str] = error.args[1]
        raise StreamSqlError(
            "CYCLE",
            "a view would read itself",
            given=" -> ".join(path),
            allowed="views that do not read each other in a cycle",
            hint="remove one of these references",
        ) from None
    levels = []
    while sorter.is_active():
        ready = sorter.get_ready()
        levels.append(sorted(ready))
        sorter.done(*ready)
    return levels


def order_of(jobs: Mapping[str, Job] | Iterable[Job]) -> list[list[str]]:
    """Levels of tables whose jobs can run in parallel. Error: CYCLE."""
    chosen = jobs.values() if isinstance(jobs, Mapping) else jobs
    return topological_order({job.table: job.sources for job in chosen})


def check_writer(table: str, existing: str, incoming: str) -> None:
    """Refuse a second model for `table`: DUPLICATE_WRITER if both ids are known and differ."""
    if existing and incoming and existing != incoming:
        raise StreamSqlError(
            "DUPLICATE_WRITER",
            f"two models write {table}",
            given=f"{incoming}, but {existing} already writes it",
            allowed="one model per table",
            hint="give one of them a different `alias` or `schema`; "
            "if the model was renamed, drop the table first",
        )
