"""The rows that changed in each input are recorded where its commits count them."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.spark


def test_each_input_has_its_own_count_and_rewritten_rows_are_not_counted(engine, spark, schema):
    at = f"lake.{schema}"
    by_position = "'format-version' = '3', 'write.delete.mode' = 'merge-on-read'"
    for name in ("orders", "users", "items"):
        properties = by_position if name == "users" else "'write.delete.mode' = 'copy-on-write'"
        spark.sql(f"CREATE TABLE {at}.{name} (id INT) TBLPROPERTIES ({properties})")
        spark.sql(f"INSERT INTO {at}.{name} SELECT id FROM range(100)")
    query = " UNION ALL ".join(f"SELECT id FROM {at}.{name}" for name in ("orders", "users"))
    engine.create_materialized_view(f"{at}.both", f"{query} UNION ALL SELECT id FROM {at}.items")
    assert "changed" not in engine.store.latest(f"{at}.both").stats, "it was built"
    spark.sql(f"INSERT INTO {at}.orders VALUES (200), (201), (202)")
    spark.sql(f"DELETE FROM {at}.users WHERE id < 2")
    spark.sql(f"DELETE FROM {at}.items WHERE id = 7")
    assert engine.advance().tables[f"{at}.both"].mode == "incremental"
    counted = engine.store.latest(f"{at}.both").stats["changed"]
    assert counted == {f"{at}.orders": 3, f"{at}.users": 2}
