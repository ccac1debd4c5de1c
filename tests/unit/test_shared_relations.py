"""What several views of an epoch read is computed once, and again after it has failed."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from dbt_streamsql.runtime.spark.shared_relations import DriverRows, SharedRelations

ROWS = DriverRows(pa.table({}), StructType())


def test_what_is_known_is_not_computed_again():
    shared, asked = SharedRelations(), []
    for _ in range(2):
        assert shared.get("key", lambda: asked.append(1) or ROWS) is ROWS
    assert asked == [1]


def test_what_has_failed_is_computed_again():
    shared = SharedRelations()
    with pytest.raises(ZeroDivisionError):
        shared.get("key", lambda: 1 // 0)
    assert shared.get("key", lambda: ROWS) is ROWS
