"""Files of models lie below the warehouse and the folders that the profile allows."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.spark

TABLE = "{{ config(materialized='table', %s) }} select 1 as id"


@pytest.fixture
def outside(tmp_path_factory):
    """A folder that no profile allows; it must stay empty."""
    folder = tmp_path_factory.mktemp("outside")
    yield folder
    assert list(folder.rglob("*")) == []


def _refused(done, *names):
    assert not done.ok
    for name in names:
        assert "[STREAMSQL.PATH_OUTSIDE]" in done.messages[name], done.messages[name]
        assert "allowed: " in done.messages[name]
        assert f"at: lake.shop.{name}" in done.messages[name]


def test_no_model_keeps_files_elsewhere(project, outside):
    (project.root / "link").symlink_to(outside)
    ways = {
        "plain": f"location_root='{outside}'",
        "uri": f"location_root='file://{outside}'",
        "up": "location_root='warehouse/../../..'",
        "link": "location_root='link'",
        "scheme": "location_root='hdfs://host/x'",
        "data": f"tblproperties={{'write.data.path': '{outside}'}}",
        "metadata": f"tblproperties={{'Write.Metadata.Path': '{outside}'}}",
        "option": f"options={{'path': '{outside}'}}",
    }
    for name, config in ways.items():
        project.write(f"models/{name}.sql", TABLE % config)
    increment = f"{{{{ config(materialized='incremental', location_root='{outside}') }}}}"
    project.write("models/increment.sql", f"{increment} select 1 as id")
    project.write(
        "models/python.py",
        f"def model(dbt, session):\n"
        f"    dbt.config(materialized='table', location_root='{outside}')\n"
        f"    open('{outside}/ran', 'w').close()\n"
        f"    return session.sql('select 1 as id')\n",
    )
    project.write("seeds/seed.csv", "id\n1\n")
    project.write(
        "seeds/seed.yml", f"seeds: [{{name: seed, config: {{location_root: '{outside}'}}}}]"
    )
    done = project.dbt("build")
    _refused(done, *ways, "increment", "python", "seed")
    assert project.tables() == set()


def test_a_hook_does_not_run_before_the_place_is_checked(project, outside):
    project.write("models/a.sql", "{{ config(materialized='table') }} select 1 as id")
    assert project.dbt("run").ok
    hook = "pre_hook='delete from lake.shop.a', "
    project.write("models/b.sql", TABLE % f"{hook} location_root='{outside}'")
    _refused(project.dbt("run", "--select", "b"), "b")
    assert project.sql("SELECT * FROM lake.shop.a") == [(1,)]


def test_a_materialized_view_lies_in_the_warehouse(project, outside):
    config = f"{{{{ config(materialized='materialized_view', location_root='{outside}') }}}}"
    project.write("models/v.sql", f"{config} select 1 as id")
    done = project.dbt("run")
    assert "[STREAMSQL.CONFIG_INVALID]" in done.messages["v"]
    assert "maintained tables are stored in the warehouse" in done.messages["v"]


def test_no_other_code_chooses_the_places(project):
    property_ = "tblproperties={'write.location-provider.impl': 'org.example.Elsewhere'}"
    project.write("models/m.sql", TABLE % property_)
    done = project.dbt("run")
    assert "[STREAMSQL.CONFIG_INVALID]" in done.messages["m"]


def test_an_allowed_folder_and_the_warehouse_take_files(project, tmp_path_factory):
    allowed = tmp_path_factory.mktemp("allowed")
    project.profile({"schema": "shop", "allowed_roots": [str(allowed)]})
    project.write("models/a.sql", TABLE % f'location_root="{allowed}/it\'s"')
    project.write("models/b.sql", TABLE % "location_root='warehouse/elsewhere'")
    project.write("models/c.sql", TABLE % f"tblproperties={{'write.data.path': '{allowed}/c'}}")
    done = project.dbt("run")
    assert done.ok, done.messages
    assert list((allowed / "it's" / "a").rglob("*.parquet"))
    assert list((project.root / "warehouse" / "elsewhere" / "b").rglob("*.parquet"))
    assert list((allowed / "c").rglob("*.parquet"))
    for name in ("a", "b", "c"):
        assert project.sql(f"SELECT id FROM lake.shop.{name}") == [(1,)]


def test_allowed_roots_are_a_list(project):
    project.profile({"schema": "shop", "allowed_roots": "/data"})
    done = project.dbt("run")
    assert "`allowed_roots` must be a list" in done.error
