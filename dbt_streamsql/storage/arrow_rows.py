"""Rows between Spark and this process, as Arrow tables."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError
from pyspark.errors.exceptions.captured import unwrap_spark_exception
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.serializers import ArrowCollectSerializer
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType
from pyspark.util import _create_local_socket

from dbt_streamsql.plan.algebra.schema import WEIGHT
from dbt_streamsql.storage.conf import only_here
from dbt_streamsql.storage.java import is_connect, sized

if TYPE_CHECKING:
    import pyarrow as pa


_LIMIT = "spark.driver.maxResultSize"
"""Spark's own limit, which it names in its error: it counts before the first row arrives."""


_LARGEST_IN_PLAN = "spark.sql.execution.arrow.localRelationThreshold"
_LARGEST_BATCH = "spark.sql.execution.arrow.maxRecordsPerBatch"

_MOST_IN_PLAN = 2_000
"""Rows that are part of a plan: each of Spark's rules goes through all rows in it, once for every
place where the query names them. 120,000 rows in 20 places took 2 of 5 seconds."""

_BATCH = 20_000
"""Rows up to which one task reads them."""


_EXACT = re.compile(
    r"(boolean|tinyint|smallint|int|bigint|date|timestamp|timestamp_ntz|string|decimal\(.*\))"
)


class TooManyBytesError(Exception):
    """The rows of a query take more memory than the process may spend on them."""

    def __init__(self, most: int) -> None:
        super().__init__(f"its rows take more than {most >> 20:,} MB of memory")


def arrow_rows(frame: DataFrame, most: int) -> pa.Table:
    """The rows of a frame.

    Error: `TooManyBytesError` when they take more than `most` bytes. Spark then stops computing
    them; over Spark Connect, whose client gives no part of a result, all of them come here first.
    """

    if is_connect(frame.sparkSession):
        table = frame.toArrow()
        if memory_of(table) > most:
            raise TooManyBytesError(most)
        return table
    schema = to_arrow_schema(frame.schema, error_on_duplicated_field_names_in_struct=True)
    try:
        return _table(_batches(frame, most), schema).cast(schema)
    except Py4JJavaError as error:
        if _LIMIT in str(error):
            raise TooManyBytesError(most) from error
        raise


def memory_of(rows: pa.Table | pa.RecordBatch) -> int:
    """The bytes that rows take in memory."""
    # `nbytes` of some nested columns ends the process (PyArrow 26.0).
    return int(rows.get_total_buffer_size())


def _batches(frame: DataFrame, most: int) -> list[pa.RecordBatch]:
    """The parts of a result, in order. `DataFrame.toArrow` does the same without a limit."""
    serializer: Any = ArrowCollectSerializer
    rows: Any = frame._jdf  # noqa: SLF001 - no public way to read a part of a result
    port, secret, serving = rows.collectAsArrowToPython()
    batches: list[pa.RecordBatch] = []
    order: list[int] = []
    size = 0
    try:
        with _create_local_socket((port, secret)) as stream:
            for part in serializer().load_stream(stream):
                if isinstance(part, list):
                    order = part
                    continue
                size += memory_of(part)
                if size > most:
                    raise TooManyBytesError(most)
                batches.append(part)
    finally:
        # The query is over: with its own error, or because its rows are not read to the end.
        with unwrap_spark_exception() if size <= most else suppress(Exception):
            serving.getResult()
    return [batches[index] for index in order]


def arrow_frame(
    spark: SparkSession, table: pa.Table, schema: StructType | None = None
) -> DataFrame:
    """An Arrow table as a DataFrame, of the types of `schema` where that is given.

    A few rows are part of the plan: Spark broadcasts them without a job, and drops joins with an
    empty table. More are read by tasks, and the plan has their size; over Spark Connect they are
    part of the plan, too.
    """
    if len(table) <= _MOST_IN_PLAN or is_connect(spark):
        return _frame(spark, table, schema)
    together = max(_BATCH, -(-len(table) // spark.sparkContext.defaultParallelism))
    with only_here(spark, {_LARGEST_IN_PLAN: "0", _LARGEST_BATCH: str(together)}):
        return sized(_frame(spark, table, schema), len(table))


def _frame(spark: SparkSession, table: pa.Table, schema: StructType | None) -> DataFrame:
    if schema is None and not len(table):
        # Spark Connect needs the types of an empty table.
        return spark.createDataFrame([], from_arrow_schema(table.schema))
    # In one chunk: at an empty one, Spark stops and loses the rows after it.
    whole = table.combine_chunks() if len(table) else _table([], table.schema)
    return spark.createDataFrame(whole, schema) if schema else spark.createDataFrame(whole)


def _table(batches: list[pa.RecordBatch], schema: pa.Schema) -> pa.Table:
    """The batches as a table, or one of no rows in one chunk: PySpark cannot infer the type of a
    struct from no chunk at all."""
    import pyarrow as pa

    return pa.Table.from_batches(batches or [pa.RecordBatch.from_pylist([], schema=schema)])


def is_exact(kind: str) -> bool:
    """Whether values of a Spark type are equal in Arrow when they are in Spark."""
    return bool(_EXACT.fullmatch(kind))


def net_rows(signed: pa.Table, columns: Sequence[str]) -> pa.Table:
    """One weight for each row of these columns, and no row of weight 0."""
    import pyarrow.compute as pc

    summed = signed.group_by(list(columns), use_threads=False).aggregate([(WEIGHT, "sum")])
    summed = summed.select([*columns, f"{WEIGHT}_sum"]).rename_columns([*columns, WEIGHT])
    return summed.filter(pc.not_equal(summed.column(WEIGHT), 0))
