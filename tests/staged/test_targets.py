"""Every check of `contract.py` on every kind of target."""

from __future__ import annotations

import json
import sys
import uuid

import pytest

from tests.staged import contract, databases, targets
from tests.staged.contract import Target
from tests.support import patience
from tests.support.spark_child import paths

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("check", contract.CHECKS)
def test_iceberg(engine, schema, warehouse, check):
    target = Target(engine, "lake", schema, "iceberg", str(warehouse / schema))
    contract.CHECKS[check](target)


@pytest.mark.parametrize("check", contract.CHECKS)
def test_files_in_sparks_own_metastore(engine, spark, check):
    name = f"s_{uuid.uuid4().hex[:8]}"
    spark.sql(f"CREATE NAMESPACE spark_catalog.{name}")
    where = spark.sql(f"DESCRIBE NAMESPACE spark_catalog.{name}").collect()
    folder = next(row[1] for row in where if row[0] == "Location").removeprefix("file:")
    target = Target(engine, "spark_catalog", name, "parquet", folder, columns_may_change=False)
    contract.CHECKS[check](target)
    spark.sql(f"DROP NAMESPACE spark_catalog.{name} CASCADE")


@pytest.mark.parametrize("check", contract.CHECKS)
def test_a_sqlite_database(engine, tmp_path, check):
    file = tmp_path / "other.db"
    url = f"jdbc:sqlite:{file}?journal_mode=WAL&busy_timeout=20000"
    name = f"sq_{uuid.uuid4().hex[:8]}"
    for key, value in targets.jdbc_catalog(name, url, targets.SQLITE_DRIVER).items():
        engine.spark.conf.set(key, value)

    def names():
        return databases.names_in_sqlite(file)

    target = Target(engine, name, "main", "jdbc", has_comments=False, names=names)
    contract.CHECKS[check](target)


@pytest.fixture(scope="session")
def results():
    """What a process of its own found for a target, run when first asked for."""
    found: dict[str, dict[str, str]] = {}

    def of(target: str) -> dict[str, str]:
        if target not in found:
            done = patience.run([sys.executable, "-m", contract.__name__, target], env=paths())
            assert done.returncode == 0, done.stderr[-4000:]
            found[target] = json.loads(done.stdout.splitlines()[-1])
        return found[target]

    return of


@pytest.mark.processes
@pytest.mark.parametrize("check", contract.CHECKS)
@pytest.mark.parametrize("target", targets.OPENERS)
def test_a_target_with_a_spark_of_its_own(results, target, check):
    problem = results(target)[check]
    assert not problem, problem
