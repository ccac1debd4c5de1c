"""dbt's unit tests: values as Spark writes them."""

from __future__ import annotations

import pytest
from dbt.tests.adapter.unit_testing import test_quoted_reserved_word_column_names as reserved


class Types:
    @pytest.fixture
    def data_types(self):
        return [
            ["1", "1"],
            ["'1'", "1"],
            ["true", "true"],
            ["date '2020-01-02'", "2020-01-02"],
            ["timestamp '2013-11-03 00:00:00-0'", "2013-11-03 00:00:00-0"],
            ["timestamp_ntz '2013-11-03 00:00:00'", "2013-11-03 00:00:00"],
            ["cast('1' as decimal(5, 2))", "1"],
            ["array(1, 2, 3)", "'array(1, 2, 3)'"],
            ["map('10', 't', '15', null)", """'map("10", "t", "15", null)'"""],
            ["named_struct('a', 1, 'b', 'c')", """'named_struct("a", 1, "b", "c")'"""],
        ]


class ReservedWord:
    @pytest.fixture(scope="class")
    def models(self):
        return {
            "my_model.sql": reserved.my_model_sql,
            "my_upstream_model.sql": "select 1 as `GROUP`",
            "unit_tests.yml": reserved.test_my_model_csv_fixtures_yml,
        }


OVERRIDES: dict[str, type] = {
    "BaseUnitTestingTypes": Types,
    "BaseUnitTestQuotedReservedWordColumnNames": ReservedWord,
}
