"""A project runs with each version of Iceberg that is tested (docs/profile.md#versions)."""

from __future__ import annotations

import pytest

from dbt_streamsql.runtime.spark import jars
from dbt_streamsql.runtime.spark.pinned_jars import ICEBERG, NOT_OVER_SQLITE
from tests.support import dbt_processes

HERE = ICEBERG[jars.spark_version()]
VERSIONS = [each.version for each in HERE if each.version not in NOT_OVER_SQLITE]
STUCK = [each.runtime for each in HERE if each.version in NOT_OVER_SQLITE]
PROFILE = """
shop:
  target: dev
  outputs:
    dev:
      type: streamsql
      schema: shop
      warehouse: {warehouse}
      iceberg: {version}
"""
MODELS = {
    "per_item": """
{{ config(materialized='materialized_view', state='all') }}
select s.item, s.n, s.total, i.name from {{ ref('items') }} i
join (select item, count(*) as n, sum(amount) as total from {{ ref('sales') }} group by item) s
  on s.item = i.item
""",
    "big": """
{{ config(materialized='table', tblproperties={'team': "it's"}) }}
select * from {{ ref('sales') }} where amount > 4
""",
    "recent": """
{{ config(materialized='materialized_view', state_ttl='1 day') }}
select s.id, i.name from {{ ref('sales') }} s join {{ ref('items') }} i on s.item = i.item
""",
}
SNAPSHOT = """
{% snapshot seen %}
{{ config(strategy='check', unique_key='id', check_cols=['amount'], target_schema='shop') }}
select * from {{ ref('sales') }}
{% endsnapshot %}
"""
CHECK = """
from dbt_streamsql import Engine
from dbt_streamsql.runtime.spark.session import open_session
from dbt_streamsql.runtime.spark.settings import SessionSettings

spark = open_session(SessionSettings(warehouse={warehouse!r}, iceberg={version!r}))
print("runs", spark._jvm.org.apache.iceberg.IcebergBuild.version())
assert spark.sql("SELECT :text AS text", args={{"text": "it's"}}).first().text == "it's"
engine = Engine.open(spark=spark, meta={meta!r})
views = ("lake.shop.per_item", "lake.shop.recent")
assert all(engine.verify(view) == [] for view in views)
engine.revise("lake.shop.sales", sql="UPDATE lake.shop.sales SET amount = 7 WHERE id = 1")
spark.sql("INSERT INTO lake.shop.items VALUES (3, 'ink')")
spark.sql("INSERT INTO lake.shop.sales VALUES (9, 3, 2)")
report = engine.advance()
assert "full" not in {{report.tables[view].mode for view in views}}, report
assert all(engine.verify(view) == [] for view in views)
print(sorted(map(tuple, spark.table(views[0]).select("item", "n", "total", "name").collect())))
"""


@pytest.mark.processes
@pytest.mark.parametrize("version", VERSIONS)
def test_a_project_runs_with_each_version_of_iceberg(project, version):
    warehouse = str(project.root / "warehouse")
    project.write("profiles.yml", PROFILE.format(warehouse=warehouse, version=version))
    project.write("seeds/items.csv", "item,name\n1,pen\n2,cup\n")
    project.write("snapshots/seen.sql", SNAPSHOT)
    for name, text in MODELS.items():
        project.write(f"models/{name}.sql", text)
    for rows in ("1,1,3\n2,1,5\n3,2,9\n", "1,1,3\n2,1,6\n4,2,1\n"):
        project.write("seeds/sales.csv", f"id,item,amount\n{rows}")
        code, said = dbt_processes.run(project, "-c", dbt_processes.DBT, "build")
        assert code == 0, said
    code, said = dbt_processes.run(project, "-c", dbt_processes.DBT, "docs", "generate")
    assert code == 0, said
    meta = f"sqlite:///{warehouse}/streamsql.db"
    check = CHECK.format(warehouse=warehouse, version=version, meta=meta)
    code, said = dbt_processes.run(project, "-c", check)
    assert code == 0, said
    assert f"runs {version}" in said
    assert "[(1, 2, 13, 'pen'), (2, 1, 1, 'cup'), (3, 1, 2, 'ink')]" in said


OPEN = """
from dbt_streamsql.runtime.spark.session import open_session
from dbt_streamsql.runtime.spark.settings import SessionSettings

own = {{"spark.driver.extraClassPath": {jar!r}}}
open_session(SessionSettings(warehouse={folder!r}, iceberg="provided", spark_properties=own))
"""


@pytest.mark.processes
@pytest.mark.skipif(not STUCK, reason="each Iceberg of this Spark works over SQLite")
def test_a_platforms_iceberg_that_does_not_see_changes_of_sqlite_is_refused(project):
    (jar,) = jars.ensure(STUCK)
    text = OPEN.format(jar=str(jar), folder=str(project.root / "warehouse"))
    code, said = dbt_processes.run(project, "-c", text)
    assert code != 0
    assert "CONFIG_INVALID" in said
    assert f"Iceberg {STUCK[0].version} needs a catalog of your own" in said
