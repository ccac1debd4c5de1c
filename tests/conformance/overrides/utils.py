"""Macros of `dbt.type_…`, and the abstract units over them with something to compare."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest
from dbt.tests.adapter.utils import fixture_get_intervals_between as intervals
from dbt.tests.adapter.utils.data_types import test_type_bigint, test_type_float, test_type_int
from dbt.tests.util import relation_from_name, run_dbt

_COLUMN_TYPES = """
seeds:
  - name: expected
    config: {{column_types: {{{column}: {type}}}}}
"""


class Pair:
    """What an abstract unit compares: the relations of a concrete one."""

    @pytest.fixture(scope="class")
    def models(self):
        return {
            "expected.sql": test_type_bigint.models__expected_sql,
            "actual.sql": test_type_bigint.models__actual_sql,
        }


class Float:
    """A number of a CSV file is a double here, where `type_float` is a float."""

    @pytest.fixture(scope="class")
    def seeds(self):
        return {
            "expected.csv": test_type_float.seeds__expected_csv,
            "expected.yml": _COLUMN_TYPES.format(column="float_col", type="float"),
        }


class Int:
    """An integer of a CSV file is a bigint here, where `type_int` is an int."""

    @pytest.fixture(scope="class")
    def seeds(self):
        return {
            "expected.csv": test_type_int.seeds__expected_csv,
            "expected.yml": _COLUMN_TYPES.format(column="int_col", type="int"),
        }


class Days:
    """The days in Spark's words; it does not read 09/01/2023."""

    @pytest.fixture(scope="class")
    def models(self):
        text = intervals.models__test_get_intervals_between_sql
        for day, literal in (("09/01/2023", "2023-09-01"), ("09/12/2023", "2023-09-12")):
            text = text.replace(f"\"'{day}'\"", f"\"date'{literal}'\"")
        return {
            "test_get_intervals_between.yml": intervals.models__test_get_intervals_between_yml,
            "test_get_intervals_between.sql": self.interpolate_macro_namespace(
                text, "get_intervals_between"
            ),
        }


class Instant:
    """Spark's TIMESTAMP is an instant: it says how long after 1970 in UTC. PySpark hands it over
    without a zone, which is what the unit for naive times looks at; the suite asks for one of both.
    """

    @pytest.fixture(scope="class")
    def current_timestamp(self, project):
        run_dbt(["build"])
        relation = relation_from_name(project.adapter, "current_ts")
        query = f"select unix_micros(current_ts_column) from {relation}"
        micros = project.run_sql(query, fetch="one")[0]
        return datetime.fromtimestamp(micros / 1e6, timezone.utc)


class Timestamps:
    """All three are TIMESTAMP; the text of the query is Spark's own."""

    @pytest.fixture(scope="class")
    def expected_schema(self):
        names = ("", "_in_utc_backcompat", "_backcompat")
        return {f"current_timestamp{name}": "timestamp" for name in names}

    @pytest.fixture(scope="class")
    def expected_sql(self):
        return None


OVERRIDES: dict[str, type] = {
    "BaseArrayUtils": Pair,
    "BaseCurrentTimestampAware": Instant,
    "BaseCurrentTimestamps": Timestamps,
    "BaseDataTypeMacro": Pair,
    "BaseGetIntervalsBetween": Days,
    "BaseTypeFloat": Float,
    "BaseTypeInt": Int,
}
