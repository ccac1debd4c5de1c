"""The implementations that stage tables, and staged tables as text."""

from __future__ import annotations

import json
import uuid
from dataclasses import asdict
from typing import Any

from pyspark.sql import SparkSession

from dbt_streamsql.errors import Place, StreamSqlError
from dbt_streamsql.storage.staged_table import StagedTable, StagingPurpose, TableSpec
from dbt_streamsql.storage.tables.delta import DeltaStagedTable
from dbt_streamsql.storage.tables.files import FilesStagedTable
from dbt_streamsql.storage.tables.iceberg_table import IcebergStagedTable
from dbt_streamsql.storage.tables.jdbc import JdbcStagedTable

IMPLEMENTATIONS: dict[str, Any] = {
    "delta": DeltaStagedTable,
    "iceberg": IcebergStagedTable,
    "jdbc": JdbcStagedTable,
    "orc": FilesStagedTable,
    "parquet": FilesStagedTable,
}
"""By `TableSpec.format`."""


def apply_staging(
    spark: SparkSession, spec: TableSpec, purpose: StagingPurpose, root: str
) -> StagedTable:
    """The staged table for a target; nothing is written yet. Error: ATOMIC_UNSUPPORTED.

    `root` is the warehouse folder or URI of the table's catalog, '' when the catalog chooses it.
    """
    kind = IMPLEMENTATIONS.get(spec.format)
    if kind is None:
        raise StreamSqlError(
            "ATOMIC_UNSUPPORTED",
            f"a table of format {spec.format} cannot be staged",
            given=f"file_format: {spec.format}",
            allowed=", ".join(sorted(IMPLEMENTATIONS)),
            hint="choose a different `file_format`, or set `atomic: false`: then the table is "
            "created first and remains if its build fails",
            place=Place(str(spec.name)),
        )
    found: StagedTable = kind.plan(spark, spec, purpose, uuid.uuid4().hex, root)
    return found


def to_json(staged: StagedTable) -> str:
    """Everything that another process needs to abort it."""
    body = asdict(staged)  # type: ignore[call-overload]
    return json.dumps({"kind": staged.spec.format, **body}, sort_keys=True)


def from_json(text: str) -> StagedTable:
    """The inverse of `to_json`."""
    body = json.loads(text)
    kind = IMPLEMENTATIONS[body.pop("kind")]
    spec = TableSpec.from_dict(body.pop("spec"))
    found: StagedTable = kind(spec=spec, purpose=StagingPurpose(body.pop("purpose")), **body)
    return found
