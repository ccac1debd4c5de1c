"""What the compiler knows of Spark's functions is what Spark says of them; a new Spark brings new ones."""

from __future__ import annotations

import pytest

from dbt_streamsql.compiler.parsing.builtin_functions import (
    AGGREGATES,
    GENERATORS,
    VOLATILE,
    WINDOWS,
)
from scripts import spark_functions

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def told(spark):
    """Spark's own description of each built-in function: (name, group, class)."""
    found = spark._jvm.org.apache.spark.sql.api.python.PythonSQLUtils.listBuiltinFunctionInfos()
    return [(info.getName(), info.getGroup(), info.getClassName()) for info in found]


def test_the_page_of_functions_is_that_of_this_spark(engine):
    written = spark_functions.FILE.read_text(encoding="utf-8")
    assert written == spark_functions.of(engine), (
        "python scripts/spark_functions.py writes it anew"
    )


@pytest.mark.parametrize(
    ("group", "known"),
    [
        ("agg_funcs", AGGREGATES),
        ("generator_funcs", GENERATORS),
        ("window_funcs", WINDOWS),
    ],
)
def test_the_kinds_of_functions_are_those_that_spark_tells(told, group, known):
    assert {name for name, of, _ in told if of == group} - known == set()
    assert {name for name, of, _ in told if name in known and of == "scalar_funcs"} == set()


def test_no_function_that_spark_calls_nondeterministic_is_taken_for_a_value(spark, told):
    loader = spark._jvm.Thread.currentThread().getContextClassLoader()
    trait = loader.loadClass("org.apache.spark.sql.catalyst.expressions.Nondeterministic")
    changing = {name for name, _, of in told if trait.isAssignableFrom(loader.loadClass(of))}
    assert {"rand", "uuid", "monotonically_increasing_id"} <= changing
    assert changing - VOLATILE == set()
