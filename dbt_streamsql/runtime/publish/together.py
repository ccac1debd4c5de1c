"""The changed tables of a barrier, published in one commit of the catalog.

MetaService makes a barrier visible at once to readers that ask it. A catalog with transactions
does so for engines that know nothing of barriers. It is an addition: what is left undone here, and
what a dead process left, is published table by table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from dbt_streamsql.meta import ROLLED_BACK, TableVersion
from dbt_streamsql.quoting import TableName
from dbt_streamsql.runtime.core.epoch_state import Warehouse, log
from dbt_streamsql.runtime.core.failpoints import failpoint
from dbt_streamsql.runtime.core.storage_errors import brief
from dbt_streamsql.storage.conf import kind_of
from dbt_streamsql.storage.iceberg import metadata
from dbt_streamsql.storage.iceberg.commits.refs import RefUpdate, update_together
from dbt_streamsql.storage.iceberg.metadata import Metadata

_ENOUGH = 2
"""After so many refusals in a row, apart from conflicts with other writers, the catalog is not
asked again: one may concern a single table."""


def publish(
    warehouse: Warehouse,
    versions: Iterable[TableVersion],
    pinned: Callable[[str, Metadata], RefUpdate],
) -> None:
    """Move the main branches of all changed tables in one commit, if their catalog can.

    It is for readers that know no barriers; what it leaves, is published table by table.
    """
    spark, catalog = warehouse.sessions.main, warehouse.catalog
    if kind_of(spark, catalog) != "rest" or warehouse.refusals >= _ENOUGH:
        return
    moves = {}
    for version in versions:
        name = TableName.parse(version.table)
        if version.to_publish and version.branch and ROLLED_BACK not in version.stats:
            meta = metadata.load(spark, name)
            if meta is not None and _is_ahead(version, meta):
                moves[name] = forward(version, pinned(version.table, meta))
    if len(moves) < 2:
        return
    try:
        with failpoint("publish.together"):
            warehouse.refusals = 0 if update_together(spark, moves) else _ENOUGH
    except (PySparkException, Py4JError) as error:
        log.warning("the catalog did not commit %s tables at once: %s", len(moves), brief(error))
        if "CommitFailedException" not in str(error):
            warehouse.refusals += 1


def _is_ahead(version: TableVersion, meta: Metadata) -> bool:
    """Whether a staged version only adds to what main has."""
    return (
        version.snapshot in meta.snapshots
        and meta.lineage(meta.current, version.snapshot) is None
        and meta.lineage(version.snapshot, meta.current) is not None
    )


def forward(version: TableVersion, tagged: RefUpdate) -> RefUpdate:
    """The branch is done once its head is the head of main: both in one commit."""
    return replace(tagged, forward=version.branch, drop_branches=(version.branch,))
