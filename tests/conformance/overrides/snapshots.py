"""Snapshots."""

from __future__ import annotations

import pytest
from dbt.tests.adapter.simple_snapshot import test_various_configs


class ValidToCurrent:
    """The unit counts on the order in which PostgreSQL keeps rows; Spark's tables have none."""

    @pytest.fixture(autouse=True)
    def ordered(self, monkeypatch):
        original = test_various_configs.run_sql_with_adapter

        def run(adapter, sql, fetch=None):
            number = "row_number() over (partition by id order by test_valid_to) as version"
            return original(
                adapter,
                f"select * from (select *, {number} from ({sql})) order by version, id",
                fetch,
            )

        monkeypatch.setattr(test_various_configs, "run_sql_with_adapter", run)


OVERRIDES: dict[str, type] = {"BaseSnapshotDbtValidToCurrent": ValidToCurrent}
