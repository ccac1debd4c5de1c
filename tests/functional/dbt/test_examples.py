"""The example projects without services, played through dbt as their README tells: build, change, run again."""

from __future__ import annotations

import datetime as dt
import shutil
import threading
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from dbt_streamsql import Engine
from dbt_streamsql.plan.document import PlanDocument, differences
from dbt_streamsql.runtime.spark.session import open_session
from tests.support import spark_way

if TYPE_CHECKING:
    from collections.abc import Iterator

from integration_tests.customer_360 import load as customers_load
from integration_tests.flights import load as flights_load
from integration_tests.order_tracking import load as tracking_load
from integration_tests.shopping import load as shopping_load

ROOT = Path(__file__).resolve().parents[3]


@dataclass
class Project:
    """A copy of an example with a warehouse of its own."""

    folder: Path
    engine: Engine
    runs: list[dict[str, Any]] = field(default_factory=list)

    def dbt(self, *arguments: str) -> dict[str, Any]:
        """Run dbt here; every node must succeed. Returns the results by node name."""
        from dbt.cli.main import dbtRunner

        where = ["--project-dir", str(self.folder), "--profiles-dir", str(self.folder)]
        done = dbtRunner().invoke([*arguments, *where])
        bad = [r for r in done.result.results if r.status not in ("success", "pass")]
        assert done.success, [(r.node.name, r.status, r.message) for r in bad] or done.exception
        return {result.node.name: result for result in done.result.results}

    def modes(self, run: dict[str, Any]) -> dict[str, str]:
        """View -> what the run did to it."""
        return {
            name: result.adapter_response["mode"]
            for name, result in run.items()
            if result.node.config.materialized in ("materialized_view", "partial_update")
        }

    def differing(self, run: dict[str, Any]) -> list[str]:
        """The views that do not equal their query."""
        names = [str(run[name].node.relation_name).replace("`", "") for name in self.modes(run)]
        return [name for name in names if self.engine.verify(name)]


def _project(name: str, parent: Path) -> Project:
    leave = shutil.ignore_patterns("warehouse", "landing", "target", "logs", "__pycache__")
    folder = parent / name
    shutil.copytree(ROOT / "integration_tests" / name, folder, ignore=leave)
    # A session on the Spark that the whole run shares, so that closing the engine leaves it alone.
    warehouse = str(folder / "warehouse")
    if way := spark_way.profile():
        file = folder / "profiles.yml"
        profiles = yaml.safe_load(file.read_text())
        profiles[name]["outputs"]["dev"] |= {"warehouse": warehouse, **way}
        file.write_text(yaml.safe_dump(profiles))
    return Project(
        folder, Engine.open(warehouse, spark=open_session(spark_way.settings(warehouse)))
    )


@pytest.fixture(scope="module")
def flights(spark: object, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """Built, then a day of December and corrections came and dbt ran again, then once more."""
    project = _project("flights", tmp_path_factory.mktemp("examples"))
    session, landing = project.engine.spark, project.folder / "landing"
    flights_load.base(session, landing)
    # The tests of the project run with the second build: they are most of the seconds of a build.
    project.runs.append(project.dbt("build", "--exclude-resource-type", "test"))
    flights_load.arrive(session, dt.date(2013, 12, 1), landing)
    flights_load.corrections(session, 7)
    project.runs.append(project.dbt("build"))
    project.runs.append(project.dbt("run"))
    yield project
    project.engine.close()


@pytest.fixture
def shopping(spark: object, tmp_path: Path) -> Iterator[Project]:
    project = _project("shopping", tmp_path)
    shopping_load.base(project.engine.spark)
    yield project
    project.engine.close()


def test_the_flights_are_kept_up_from_changes_and_pass_their_tests(flights: Project):
    first, second, _ = flights.runs
    assert set(flights.modes(first).values()) == {"full"}
    modes = flights.modes(second)
    assert "full" not in modes.values()
    assert len(modes) >= 14
    assert sum(result.status == "pass" for result in second.values()) >= 25


def test_the_rows_of_a_day_and_its_corrections_are_few(flights: Project):
    said = flights.runs[1]["carrier_day"].adapter_response
    # 16 carriers on one new day, and the groups that about 500 corrections hit
    assert 16 <= said["rows_inserted"] <= 1100
    assert said["rows_deleted"] < said["rows_inserted"]


def test_every_view_of_the_flights_equals_its_query(flights: Project):
    assert flights.differing(flights.runs[1]) == []


def test_a_run_without_news_leaves_every_view_alone(flights: Project):
    # `airport_directory`, which `region_traffic` reads, is a table that each run makes anew.
    assert set(flights.modes(flights.runs[2]).values()) == {"noop"}


def test_the_shop_is_kept_up_from_changes_and_passes_its_tests(shopping: Project):
    shopping.dbt("build")
    for seed in (1, 2):
        shopping_load.arrive(shopping.engine.spark, seed)
        shopping_load.change(shopping.engine.spark, seed)
        run = shopping.dbt("build")
        assert "full" not in shopping.modes(run).values()
        assert shopping.differing(run) == []


def test_the_customers_are_kept_up_from_changes_and_pass_their_tests(
    spark: object, tmp_path: Path
):
    project = _project("customer_360", tmp_path)
    customers_load.base(project.engine.spark)
    project.dbt("build")
    for seed in (3, 4):
        customers_load.change(project.engine.spark, seed)
        run = project.dbt("build")
        assert set(project.modes(run).values()) == {"incremental"}
        assert project.differing(run) == []
    project.engine.close()


def test_the_average_price_never_mixes_two_barriers(shopping: Project):
    """A reader that asks all the time while dbt publishes sees only averages that were true."""
    shopping.dbt("build")
    seen: set[tuple[int, Decimal, Decimal]] = set()
    problems: list[Any] = []
    stop = threading.Event()

    def read() -> None:
        try:
            while not stop.is_set():
                rows = shopping.engine.sql(
                    """
                    SELECT a.user_id, a.item_id, a.total_amount, p.total_price,
                           v.total_amount AS joined_amount, v.total_price AS joined_price,
                           v.avg_price
                    FROM lake.shopping.user_item_amount a
                    JOIN lake.shopping.user_item_price p USING (user_id, item_id)
                    JOIN lake.shopping.avg_price v USING (user_id, item_id)
                    """
                ).collect()
                for row in rows:
                    if row.user_id == 1:
                        seen.add((row.total_amount, row.total_price, row.avg_price))
                    elif row.total_price != row.total_amount * (5 + row.item_id):
                        problems.append(row)
                    if row[2:4] != row[4:6]:
                        problems.append(row)
        except Exception as error:  # noqa: BLE001 - shown by the assertion
            problems.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for seed in (1, 2, 3):
            shopping_load.arrive(shopping.engine.spark, seed)
            shopping_load.change(shopping.engine.spark, seed)
            shopping.dbt("run")
    finally:
        stop.set()
        reader.join()
    assert problems == []
    assert seen == {
        (100, Decimal("1000.00"), Decimal("10.00000")),
        (300, Decimal("2500.00"), Decimal("8.33333")),
    }


def test_tracked_orders_run_a_plan_file_that_was_compiled_and_edited(
    spark: object, tmp_path: Path
):
    project = _project("order_tracking", tmp_path)
    tracking_load.base(project.engine.spark)
    project.dbt("build")
    for seed in (3, 4):
        tracking_load.change(project.engine.spark, seed)
        run = project.dbt("build")
        assert "full" not in project.modes(run).values()
        assert project.differing(run) == []
    model = project.folder / "models" / "enriched_orders.sql"
    model.write_text(
        "".join(line for line in model.open() if not line.startswith("{{ config(plan="))
    )
    project.dbt("compile")
    before, after = (
        PlanDocument.from_json((project.folder / place / "enriched_orders.json").read_text())
        for place in ("target/plans", "plans")
    )
    assert differences(before, after) == [
        "node 1 (inner join of 2): join-right-state is kept for 1 day, not 7 days"
    ]
    assert [state.ttl for state in before.nodes[0].state or ()] == [604_800_000, 604_800_000]
    project.engine.close()
