"""SQL functions: kept as a hidden view whose property holds the definition."""

from __future__ import annotations

import json
import re

import pytest
from dbt.tests.adapter.functions import files
from dbt.tests.util import run_dbt

_DEFINITION = re.compile(r"tblproperties \('streamsql\.function' = '(.*?)'\)\s+as ", re.DOTALL)


class Functions:
    """The statement that makes a function, and what it says of it."""

    function = "price_for_xlarge"

    def is_function_create_event(self, event):
        return (
            event.data.node_info.node_name == self.function
            and "create or replace view" in event.data.sql
        )

    def volatility(self, sql):
        text = _DEFINITION.search(sql)[1]
        return json.loads(text.replace("\\\\", "\\"))["volatility"]

    def check_function_volatility(self, sql):
        assert self.volatility(sql) == ""


class Deterministic(Functions):
    def check_function_volatility(self, sql):
        assert self.volatility(sql) == "deterministic"


class Stable(Functions):
    def check_function_volatility(self, sql):
        assert self.volatility(sql) == "stable"


class NonDeterministic(Functions):
    def check_function_volatility(self, sql):
        assert self.volatility(sql) == "non-deterministic"


class Defaults(Functions):
    """Defaults work, so that the unit's other half is asked: the call without an argument."""

    def test_udfs(self, project, sql_event_catcher):
        assert len(run_dbt(["build", "--debug"], callbacks=[sql_event_catcher.catch]).results) == 1
        assert '"default": "100"' in sql_event_catcher.caught_events[0].data.sql
        result = run_dbt(["show", "--inline", "SELECT {{ function('price_for_xlarge') }}()"])
        assert len(result.results) == 1
        assert result.results[0].agate_table.rows[0].values()[0] == 200


class Aggregates(Functions):
    function = "sum_squared"

    @pytest.fixture(scope="class")
    def functions(self):
        return {
            "sum_squared.sql": files.SUM_SQUARED_UDAF_SQL,
            "sum_squared.yml": files.SUM_SQUARED_UDAF_SQL_YML,
        }


OVERRIDES: dict[str, type] = {
    "UDFsBasic": Functions,
    "DeterministicUDF": Deterministic,
    "StableUDF": Stable,
    "NonDeterministicUDF": NonDeterministic,
    "SqlUDFDefaultArgSupport": Defaults,
    "BasicSQLUDAF": Aggregates,
    "UDAFBase": Aggregates,
}
