"""Every example that Spark documents of its functions means the same after the compiler read it.

`DESCRIBE FUNCTION EXTENDED` gives the examples. Each is compiled as a view; what the compiler
would compute changed rows by is analyzed by Spark and compared with the example itself: the same
plan, or else the same rows.
"""

from __future__ import annotations

import re
from collections import Counter

import pytest

from dbt_streamsql import StreamSqlError
from dbt_streamsql.compiler.codegen.render_sql import plain
from dbt_streamsql.compiler.compile import compile_view
from dbt_streamsql.plan.tree_json import node_of

pytestmark = pytest.mark.spark

SHARES = 8
_EXAMPLE = re.compile(r"^\s*> (SELECT.*?);\s*$", re.MULTILINE | re.DOTALL)
_RELATION = re.compile(r"\bFROM\s+(?!\d)(\w+\b(?!')|\()", re.IGNORECASE)

ANY_ANSWER = frozenset(
    ["any_value", "array_agg", "collect_list", "first", "first_value", "last", "last_value"]
)
"""Of their right answers the compiler keeps to another one (docs/decisions/0010)."""

NOT_RUN = ("could not be read", "SQL_INVALID: two columns are named", "SQL_UNSUPPORTED")
TRULY_FULL = (
    "its value changes from call to call",
    "table function",
    "cannot be compared",
    "has a collation",
    "its result may differ from run to run",
    "give its columns names",
    "over a frame by RANGE",
    "only a constant gap is maintained",
    "PARTITION BY",
    "could not be resolved",
    "the parser reads",
    "the compiler cannot read this query",
)
"""Why an example may be refreshed in full."""


@pytest.fixture(scope="module")
def tally():
    counted = Counter()
    yield counted
    print(f"\nexamples of Spark's functions: {dict(counted)}")


@pytest.mark.parametrize("share", range(SHARES))
def test_the_examples_of_sparks_functions_mean_the_same(engine, schema, tally, share):
    spark = engine.spark
    spark.sql(f"CREATE TABLE lake.{schema}.one AS SELECT 1 AS k")
    functions = [row[0] for row in spark.sql("SHOW SYSTEM FUNCTIONS").collect()]
    wrong = []
    for function in functions[share::SHARES]:
        for example in _examples(spark, function):
            query = example if _reads(example) else f"{example} FROM lake.{schema}.one"
            try:
                shown = spark.sql(query)
                shown.schema  # noqa: B018 - analyzed
            except Exception:  # noqa: BLE001 - what Spark itself refuses is no example
                tally["refused by Spark"] += 1
                continue
            verdict = _compared(engine, spark, function, query, shown, f"lake.{schema}.v")
            tally[verdict.partition(":")[0]] += 1
            if verdict.startswith("wrong"):
                wrong.append(f"{query}: {verdict}")
    assert not wrong, "\n".join(wrong)


def _examples(spark, function):
    rows = spark.sql(f"DESCRIBE FUNCTION EXTENDED `{function}`").collect()
    return [found.strip() for found in _EXAMPLE.findall("\n".join(row[0] for row in rows))]


def _reads(query):
    """Whether a query has a FROM that is not one of EXTRACT, TRIM or SUBSTRING."""
    flat, before = query, ""
    while flat != before:
        before, flat = flat, re.sub(r"\([^()]*\)", "", flat)
    return _RELATION.search(flat) is not None or bool(re.search(r"\bFROM\s*$", flat))


def _compared(engine, spark, function, query, shown, view):
    try:
        plan = compile_view(query, engine.tables.known, table=view)
    except StreamSqlError as error:
        told = f"{error.code}: {error.message}"
        return "refused" if told.startswith(NOT_RUN) else f"wrong: {told}"
    if plan.mode == "full":
        known = any(part in plan.reasons[0] for part in TRULY_FULL)
        return "in full" if known else f"wrong: in full, {plan.reasons[0]}"
    made = spark.sql(plain(node_of(plan.tree)))
    if shown.sameSemantics(made):
        return "the same plan"
    types = [[field.dataType for field in frame.schema] for frame in (shown, made)]
    if types[0] != types[1]:
        return f"wrong: types {types}"
    if function in ANY_ANSWER:
        return "another right answer"
    rows = [sorted(_texts(frame)) for frame in (shown, made)]
    return "the same rows" if rows[0] == rows[1] else f"wrong: {rows}"


def _texts(frame):
    """The rows as Spark writes them: PySpark cannot read values of every type."""
    names = [f"c{position}" for position in range(len(frame.columns))]
    shown = frame.toDF(*names).selectExpr(*(f"CAST({name} AS STRING)" for name in names))
    return [repr(tuple(row)) for row in shown.collect()]
