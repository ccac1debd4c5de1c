"""What a maintained table keeps of its definition: enough to rebuild a store that was lost.

It is a property of the table, set where the table is built, and again where it is published with
another definition. It is packed, because Spark hides values that look like secrets, and a query
may hold such words; and because every metadata file repeats it.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from pyspark.sql import SparkSession

from dbt_streamsql.meta import Job
from dbt_streamsql.meta.model.stored_definition import definition_of
from dbt_streamsql.quoting import TableName
from dbt_streamsql.storage.iceberg import metadata, staging
from dbt_streamsql.storage.iceberg.metadata import Metadata

DEFINITION = f"{staging.OWN_PROPERTIES}definition"
STORE = f"{staging.OWN_PROPERTIES}store"
"""The id of the store that maintains the table."""

TABLE = f"{staging.OWN_PROPERTIES}table"
"""The table's name, which a staging table has yet to get."""

UNCHANGED = f"{staging.OWN_PROPERTIES}unchanged"
"""The snapshot that matches the definition although another one, of the same meaning, made it."""

_ALWAYS = ("sql", "refresh_mode", "unique_id", "fingerprint", "changelog", "properties")
"""What earlier releases kept, so that they can read it and the text for a view stays the same."""


@dataclass(frozen=True)
class Definition:
    """A model's definition of a view, and the fingerprint of the plan that resulted.

    `stream` is what a streaming table reads, `beside` the one that writes this table, `part` the
    part of other views' queries that it stores. `state`, `state_ttl` and `keys` are as
    `StoredDefinition.as_config` has them.
    """

    sql: str
    refresh_mode: str = "auto"
    unique_id: str = ""
    fingerprint: str = ""
    changelog: bool = False
    properties: Mapping[str, str] = field(default_factory=dict)
    stream: Mapping[str, Any] = field(default_factory=dict)
    beside: str = ""
    part: str = ""
    state: str | Sequence[int] = ""
    state_ttl: Mapping[str, Any] = field(default_factory=dict)
    keys: Sequence[Mapping[str, str]] = ()


def encode(job: Job) -> str:
    """The definition of a job as a property; the same text for the same definition."""
    known = definition_of(job)
    kept = Definition(
        job.sql,
        job.refresh_mode,
        job.unique_id,
        job.fingerprint,
        known.changelog,
        known.properties,
        known.stream or {},
        known.side_of,
        known.part,
        known.state if known.state != "auto" else "",
        known.state_ttl,
        [key.as_data() for key in known.keys],
    )
    told = {key: value for key, value in asdict(kept).items() if value or key in _ALWAYS}
    text = json.dumps(told, sort_keys=True)
    return base64.b64encode(zlib.compress(text.encode(), 9)).decode("ascii")


def decode(text: str) -> Definition | None:
    """The definition in a property; None when this version cannot read it."""
    try:
        return Definition(**json.loads(zlib.decompress(base64.b64decode(text, validate=True))))
    except (ValueError, TypeError, zlib.error):
        return None


def properties(table: str, store: str, job: Job | None) -> dict[str, str]:
    """The properties of a table; `job` is None for a changelog, which its view defines."""
    kept = {TABLE: table, STORE: store}
    return kept if job is None else {**kept, DEFINITION: encode(job)}


def keep(
    spark: SparkSession,
    at: TableName,
    meta: Metadata,
    wanted: Mapping[str, str],
    unchanged: int | None = None,
) -> None:
    """Set the properties of the table `at` to what is wanted; a no-op where they are already.

    `unchanged`: the snapshot that matches the new definition as it did the old one.
    """
    more = {UNCHANGED: str(unchanged)} if unchanged is not None else {}
    new = {k: v for k, v in {**wanted, **more}.items() if meta.properties.get(k) != v}
    if new:
        staging.set_properties(spark, at, new)


def forget(spark: SparkSession, table: TableName) -> None:
    """Turn the table into a plain one."""
    meta = metadata.load(spark, table)
    known = meta.properties if meta is not None else {}
    gone = [key for key in (DEFINITION, STORE, TABLE, UNCHANGED) if key in known]
    staging.set_properties(spark, table, {}, gone)
