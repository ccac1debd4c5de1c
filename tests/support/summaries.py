"""Commits whose summaries say what other writers say in theirs: nothing, or what does not add up."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa

from dbt_streamsql.quoting import TableName
from dbt_streamsql.storage.iceberg.files import parquet
from dbt_streamsql.storage.java import java_class, java_table

Summary = Mapping[str, str]

_TOTALS = {
    "total-records": ("added-records", "deleted-records"),
    "total-data-files": ("added-data-files", "deleted-data-files"),
    "total-delete-files": ("added-delete-files", "removed-delete-files"),
    "total-position-deletes": ("added-position-deletes", "removed-position-deletes"),
    "total-equality-deletes": ("added-equality-deletes", "removed-equality-deletes"),
}


def bare(own: Summary, _: Summary) -> Summary:
    """What Iceberg requires, and DuckDB 1.4 writes."""
    return {"operation": own["operation"]}


def from_zero(own: Summary, before: Summary) -> Summary:
    """Totals that go on from what the commit before tells, and from 0 where it does not."""
    told = {key: text for key, text in own.items() if not key.startswith("total-")}
    for total, (added, removed) in _TOTALS.items():
        change = int(own.get(added, 0)) - int(own.get(removed, 0))
        told[total] = str(max(0, int(before.get(total, 0)) + change))
    return told


def always_from_zero(own: Summary, _: Summary) -> Summary:
    """Totals that know of no commit before."""
    return from_zero(own, {})


def untold(own: Summary, _: Summary) -> Summary:
    """Totals alone: what was added and removed is left out."""
    return {k: v for k, v in own.items() if k == "operation" or k.startswith("total-")}


def uncounted(own: Summary, _: Summary) -> Summary:
    """What was added and removed, without the totals."""
    return {key: text for key, text in own.items() if not key.startswith("total-")}


def retold(spark, name: TableName, tell: Callable[[Summary, Summary], Summary]) -> None:
    """Give the table's newest commit another summary, by what `tell` makes of its own and of that
    of the commit before."""
    operations = java_table(spark, name).operations()
    parser = java_class(spark, "org.apache.iceberg.TableMetadataParser")
    known = operations.current()
    body = json.loads(parser.toJson(known))
    commits = {commit["snapshot-id"]: commit for commit in body["snapshots"]}
    newest = commits[body["current-snapshot-id"]]
    before = commits.get(newest.get("parent-snapshot-id"), {}).get("summary", {})
    newest["summary"] = dict(tell(newest["summary"], before))
    operations.commit(known, parser.fromJson(json.dumps(body)))


def delete_by_value(spark, name: TableName, column: str, values: Sequence[int]) -> None:
    """One commit that deletes rows by a BIGINT, as Flink's sink does (an equality delete)."""
    table = java_table(spark, name)
    number = table.schema().findField(column).fieldId()
    field = pa.field(column, pa.int64(), metadata={"PARQUET:field_id": str(number)})
    content = parquet(pa.table([pa.array(values, pa.int64())], schema=pa.schema([field])))
    path = table.locationProvider().newDataLocation(f"{uuid.uuid4()}.parquet")
    stream = table.io().newOutputFile(path).create()
    stream.write(content)
    stream.close()
    gateway = spark.sparkContext._gateway
    fields = gateway.new_array(gateway.jvm.int, 1)
    fields[0] = number
    builder = java_class(spark, "org.apache.iceberg.FileMetadata")
    builder = builder.deleteFileBuilder(table.spec()).ofEqualityDeletes(fields)
    builder = builder.withFormat("PARQUET").withPath(path).withFileSizeInBytes(len(content))
    table.newRowDelta().addDeletes(builder.withRecordCount(len(values)).build()).commit()
