"""The queries of the differential tier on Spark itself: what DuckDB is laxer about shows here.

`STREAMSQL_WHOLE` is the number of views, `STREAMSQL_SEED` the first seed.
"""

from __future__ import annotations

import os
from collections import Counter

import pytest
import sqlglot
from py4j.protocol import Py4JJavaError
from pyspark.errors import IllegalArgumentException

from tests.differential.duck_grammar import TABLES, VIEWS, scenario
from tests.support.catalogs import drop_schema

pytestmark = [pytest.mark.spark, pytest.mark.suites]

MANY = int(os.environ.get("STREAMSQL_WHOLE", "24"))
SEED = int(os.environ.get("STREAMSQL_SEED", "1000"))
A_TIME, EPOCHS = 12, 3


def spark_sql(statement: str, schema: str) -> str:
    """A statement of the tier for Spark, over the tables of a schema."""
    tree = sqlglot.parse_one(statement, dialect="duckdb")
    for table in tree.find_all(sqlglot.exp.Table):
        table.set("db", sqlglot.to_identifier(schema))
        table.set("catalog", sqlglot.to_identifier("lake"))
    return tree.sql(dialect="spark")


@pytest.fixture(scope="module")
def tally():
    counted = Counter()
    yield counted
    print(f"\nwhole language on Spark, from seed {SEED}: {dict(counted)}")


@pytest.mark.parametrize("seed", range(SEED, SEED + -(-MANY // A_TIME)))
def test_random_queries_of_all_of_sql_equal_themselves_on_spark(engine, schema, tally, seed):
    chosen = scenario(seed, min(MANY, A_TIME), EPOCHS)
    for name, columns in TABLES.items():
        fields = ", ".join(" ".join(column) for column in columns)
        engine.spark.sql(f"CREATE TABLE lake.{schema}.{name} ({fields})")
    for name, (text, _) in VIEWS.items():
        engine.spark.sql(f"CREATE VIEW lake.{schema}.{name} AS {spark_sql(text, schema)}")
    for statement in chosen.create:
        engine.spark.sql(spark_sql(statement, schema))
    made: dict[str, str] = {}
    for number, view in enumerate(chosen.views):
        name, text = f"lake.{schema}.v{number}", view.sql.replace("lake.s.", f"lake.{schema}.")
        try:
            engine.create_materialized_view(name, text)
        except Py4JJavaError:
            # Spark's optimizer fails on some queries (PushProjectionThroughUnion: key not found):
            # on the query alone, too.
            with pytest.raises(Py4JJavaError):
                engine.spark.sql(text).collect()
            tally["fails on Spark alone"] += 1
            continue
        made[name] = text
    try:
        for number, statements in enumerate(chosen.epochs):
            for statement in statements:
                _change(engine, spark_sql(statement, schema))
            report = engine.advance()
            for name, text in made.items():
                tally[report.tables[name].mode] += 1
                wrong = engine.verify(name)
                assert wrong == [], f"epoch {number}: {text}\n{chosen.script()}"
                assert "stored rows" not in report.tables[name].reason, text
    finally:
        engine.abort()
        drop_schema(engine, schema)
        engine.spark.sql(f"CREATE NAMESPACE lake.{schema}")


def _change(engine, statement):
    """Run a statement, unless it is one that Iceberg takes no filter of."""
    try:
        engine.spark.sql(statement)
    except IllegalArgumentException as error:
        if "Cannot create expression literal" not in str(error):
            raise
