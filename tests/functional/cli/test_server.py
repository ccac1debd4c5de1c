"""The warm engine as a user meets it: the command `streamsql spark`, and dbt beside it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.runtime.spark.jars import cache_folder
from dbt_streamsql.runtime.spark.settings import SessionSettings
from dbt_streamsql.warm import discover, process
from dbt_streamsql.warm.record import Place, State
from tests.support import patience

pytestmark = pytest.mark.processes

BIN = Path(sys.executable).parent
SMALL = {"spark.driver.memory": "700m"}
SLOW = "select count(*) as n from range(1000000) a cross join range(1000000) b"
HOLD = """
import sys, time
from dbt_streamsql.runtime.spark.settings import SessionSettings
from dbt_streamsql.warm.discover import open_warm
session = open_warm(SessionSettings(**eval(sys.argv[1])))
print("open", flush=True)
session.sql(sys.argv[2]).collect()
time.sleep(600)
"""


class Shop:
    """A dbt project in a process of its own, with a cache of its own, so that no engine is shared."""

    def __init__(self, root: Path) -> None:
        self.root = root
        cache = root / "cache"
        cache.mkdir()
        (cache / "jars").symlink_to(cache_folder() / "jars")
        self.environment = {
            **os.environ,
            "STREAMSQL_CACHE": str(cache),
            "DBT_SEND_ANONYMOUS_USAGE_STATS": "false",
        }
        self.write("dbt_project.yml", "name: shop\nversion: '1.0'\nprofile: shop\n")
        self.write("seeds/items.csv", "id,kind,price\n1,a,1.50\n2,b,2.50\n3,a,4.00\n")
        view = "{{ config(materialized='materialized_view') }} select kind, sum(price) as price"
        self.write("models/totals.sql", view + " from {{ ref('items') }} group by kind")
        self.profile()

    @property
    def settings(self) -> SessionSettings:
        return SessionSettings(warehouse=str(self.root / "warehouse"), spark_properties=SMALL)

    @property
    def place(self) -> Place:
        return Place(self.settings)

    def profile(self, **keys: object) -> None:
        output = {"type": "streamsql", "schema": "shop", "spark_properties": SMALL, **keys}
        self.write(
            "profiles.yml", yaml.safe_dump({"shop": {"target": "dev", "outputs": {"dev": output}}})
        )

    def write(self, name: str, text: str) -> None:
        file = self.root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def open(self, *command: str) -> subprocess.Popen[str]:
        program, *arguments = command
        where = ["--project-dir", str(self.root), "--profiles-dir", str(self.root)]
        return subprocess.Popen(
            [str(BIN / program), *arguments, *(where if program in ("dbt", "streamsql") else [])],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=self.environment,
            cwd=self.root,
            # Whoever starts the tests in the background has switched Ctrl-C off for its children.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
        )

    def run(self, *command: str) -> tuple[int, str]:
        return self.end(self.open(*command))

    def end(self, opened: subprocess.Popen[str]) -> tuple[int, str]:
        """Wait for a command for as long as it works, or the engine does."""
        record = self.place.read()
        output, _ = patience.communicate(opened, None, *([record.pid] if record else []))
        return opened.returncode, output

    def server(self, *command: str) -> dict[str, object]:
        code, output = self.run("streamsql", "spark", *command, "--json")
        assert code in (0, 3), output
        return json.loads(output.splitlines()[-1])

    def hold(self, sql: str = "select 1") -> subprocess.Popen[str]:
        """Another client with an open session."""
        keys = {"warehouse": self.settings.warehouse, "spark_properties": SMALL}
        client = self.open("python", "-c", HOLD, repr(keys), sql)
        assert patience.line(client) == "open\n"
        return client

    @property
    def statements(self) -> int:
        state = self.place.state()
        return state.statements if state is not None else 0

    def look(self) -> None:
        """Return when the engine has looked once more at who uses it: its own second."""
        pid, before = self.place.read().pid, self._looked()
        patience.until(lambda: self._looked() != before, pid)

    def _looked(self) -> int:
        try:
            return (self.place.folder / "state.json").stat().st_mtime_ns
        except FileNotFoundError:
            return 0


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    patch = pytest.MonkeyPatch()
    made = Shop(tmp_path_factory.mktemp("shop"))
    patch.setenv("STREAMSQL_CACHE", made.environment["STREAMSQL_CACHE"])
    yield made
    made.server("stop", "--force")
    patch.undo()


@pytest.fixture
def engine_up(shop):
    """The process number of the shop's engine, which runs."""
    return shop.server("start")["pid"]


def jvm_of(pid: int) -> int:
    """The engine's Java process."""
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return next(int(c) for c in found if "java" in Path(f"/proc/{c}/cmdline").read_text())


def test_of_two_starts_at_once_one_starts_the_engine(shop):
    starters = [shop.open("streamsql", "spark", "start", "--json") for _ in range(2)]
    told = [json.loads(shop.end(starter)[1].splitlines()[-1]) for starter in starters]
    assert sorted(one["started"] for one in told) == [False, True]
    assert told[0]["pid"] == told[1]["pid"]
    assert shop.server("start")["started"] is False


def test_the_token_is_in_a_private_file_and_in_no_output(shop, engine_up):
    record = shop.place.read()
    assert len(record.token) >= 40
    assert shop.place.folder.stat().st_mode & 0o777 == 0o700
    for file in shop.place.folder.iterdir():
        assert file.stat().st_mode & 0o077 == 0, file
        if file.name != "server.json":
            assert record.token not in file.read_text()
    shown = "".join(
        shop.run("streamsql", "spark", "status", *more)[1] for more in ([], ["--json"])
    )
    assert record.token not in shown + repr(record)
    for pid in (engine_up, jvm_of(engine_up)):
        for name in ("cmdline", "environ"):
            assert record.token not in Path(f"/proc/{pid}/{name}").read_text(errors="replace")


def test_dbt_uses_the_engine_by_itself_and_a_second_run_has_nothing_to_do(shop, engine_up):
    code, output = shop.run("dbt", "debug")
    assert code == 0, output
    assert "embedded, the warm engine" in output
    code, output = shop.run("dbt", "build")
    assert code == 0, output
    code, output = shop.run("dbt", "run")
    assert code == 0, output
    assert "NOOP" in output
    code, output = shop.run("dbt", "show", "--inline", "select * from lake.shop.totals order by 1")
    assert code == 0, output
    assert "5.5" in output
    told = shop.server("status")
    assert (told["running"], told["usable"], told["sessions"]) == (True, True, 0)
    assert told["memory_used_bytes"] < told["memory_limit_bytes"]


def test_many_views_over_a_view_of_the_same_run_are_built_on_the_engine(shop, engine_up):
    # More than read one version as it is stored: it is cached for the others, and staged as yet.
    view = "{{ config(materialized='materialized_view') }} select "
    names = [f"read_{number}" for number in range(5)]
    shop.write("models/read.sql", view + "id, kind, price from {{ ref('items') }} where id > 1")
    for name in names:
        shop.write(
            f"models/{name}.sql",
            view + "kind, sum(price) as p from {{ ref('read') }} group by kind",
        )
    try:
        code, output = shop.run("dbt", "build", "-s", "items+")
        assert code == 0, output
        code, output = shop.run("dbt", "run", "-s", "read+")
        assert code == 0, output
        assert output.count("NOOP") == len(names) + 1, output
    finally:
        for name in ("read", *names):
            (shop.root / f"models/{name}.sql").unlink()


def test_tables_without_rows_are_made_on_the_engine(shop, engine_up):
    shop.write("seeds/nothing.csv", "id,name\n")
    shop.write("seeds/seeds.yml", "seeds: [{name: nothing, config: {column_types: {id: int}}}]\n")
    shop.write(
        "models/none.py",
        "import pandas as pd\n\n\ndef model(dbt, session):\n"
        "    dbt.config(materialized='table')\n"
        "    return pd.DataFrame({'id': [1], 'score': [1.5]}).iloc[:0]\n",
    )
    code, output = shop.run("dbt", "build", "-s", "nothing", "none")
    assert code == 0, output
    query = (
        "select typeof(a.id) as t, count(*) as n, typeof(b.score) as s "
        "from (select max(id) as id from lake.shop.nothing) a, "
        "(select max(score) as score from lake.shop.none) b group by all"
    )
    code, output = shop.run("dbt", "show", "--inline", query)
    assert "int" in output, output
    assert "double" in output, output
    for name in ("seeds/nothing.csv", "seeds/seeds.yml", "models/none.py"):
        (shop.root / name).unlink()


def test_an_engine_that_does_not_fit_is_left_alone_with_a_word(
    shop, engine_up, caplog, monkeypatch
):
    fits = shop.settings
    assert discover.warm(fits).port == shop.server("status")["port"]
    other = replace(fits, spark_properties={**SMALL, "spark.sql.ansi.enabled": "false"})
    assert discover.warm(other) is None
    assert "different settings" in caplog.text
    assert discover.warm(replace(fits, method="cluster", master="local[1]")) is None
    monkeypatch.setenv("STREAMSQL_SERVER", "off")
    assert discover.warm(fits) is None
    monkeypatch.setenv("STREAMSQL_SERVER", "perhaps")
    with pytest.raises(StreamSqlError) as refused:
        discover.warm(fits)
    assert refused.value.code == "CONFIG_INVALID"


def test_a_record_that_others_could_have_written_or_read_is_not_trusted(shop, engine_up):
    file = shop.place.folder / "server.json"
    file.chmod(0o644)
    assert discover.warm(shop.settings) is None
    file.chmod(0o600)
    assert discover.warm(shop.settings) is not None


def test_an_engine_whose_warehouse_was_removed_is_left_alone_with_a_word(shop, engine_up, caplog):
    catalog = shop.root / "warehouse" / "catalog.db"
    kept = catalog.rename(catalog.with_name("kept"))
    try:
        assert discover.warm(shop.settings) is None
        assert "its catalog was removed" in caplog.text
    finally:
        kept.rename(catalog)
    assert discover.warm(shop.settings) is not None


def test_an_engine_that_does_not_answer_is_left_alone_with_a_word(shop, engine_up, caplog):
    java = jvm_of(engine_up)
    os.kill(java, signal.SIGSTOP)
    try:
        assert discover.warm(shop.settings) is None
        assert "does not answer" in caplog.text
    finally:
        os.kill(java, signal.SIGCONT)


def test_an_engine_in_use_is_not_stopped_and_a_killed_client_leaves_nothing_there(shop, engine_up):
    client = shop.hold(SLOW)
    patience.until(lambda: shop.statements == 1, engine_up, client)
    assert shop.server("status")["statements"] == 1
    code, output = shop.run("streamsql", "spark", "stop")
    assert code == 2
    assert "SERVER_BUSY" in output
    assert shop.server("status")["pid"] == engine_up
    client.kill()
    client.communicate()
    within_looks(shop, lambda state: (state.sessions, state.statements) == (0, 0))
    assert shop.server("stop")["stopped"] is True
    assert not process.identity(engine_up)
    assert shop.server("status") == {"running": False, "warehouse": shop.settings.warehouse}
    assert discover.warm(shop.settings) is None


def test_ctrl_c_stops_the_statements_of_the_run_on_the_engine(shop, engine_up):
    # A materialized view is computed in a session of the engine's, which dbt knows nothing of.
    shop.write("models/slow.sql", "{{ config(materialized='materialized_view') }} " + SLOW)
    try:
        run = shop.open("dbt", "build")
        compute(shop, run)
        run.send_signal(signal.SIGINT)
        # The engine is not watched: it would work on for hours.
        output, _ = patience.communicate(run)
    finally:
        run.kill()
        (shop.root / "models/slow.sql").unlink()
    assert run.returncode != 0, output
    within_looks(shop, lambda state: state.statements == 0)
    code, output = shop.run("dbt", "build")
    assert code == 0, output


def test_an_engine_killed_in_the_middle_of_a_run_fails_it_and_the_next_run_works(shop, engine_up):
    shop.write("models/slow.sql", "{{ config(materialized='table') }} " + SLOW)
    shop.write("seeds/items.csv", "id,kind,price\n1,a,1.50\n2,b,9.50\n3,a,4.00\n")
    try:
        run = shop.open("dbt", "build", "--threads", "1")
        compute(shop, run)
        java = jvm_of(engine_up)
        os.kill(engine_up, signal.SIGKILL)
        output, _ = patience.communicate(run)
    finally:
        run.kill()
        (shop.root / "models/slow.sql").unlink()
    assert run.returncode != 0
    assert "server is gone" in output, output
    patience.until(lambda: not process.identity(java), java)
    assert discover.warm(shop.settings) is None
    code, output = shop.run("dbt", "build")  # in its own process: the record is stale
    assert code == 0, output
    assert "it is not running any more" in output
    code, output = shop.run("dbt", "show", "--inline", "select * from lake.shop.totals order by 1")
    assert "9.5" in output, output


def test_an_engine_ends_when_nobody_has_used_it_for_long_enough(shop):
    shop.server("stop", "--force")
    pid = shop.server("start", "--idle-minutes", "0.02")["pid"]
    patience.until(lambda: not process.identity(pid), pid)
    assert shop.server("status")["running"] is False


def compute(shop: Shop, run: subprocess.Popen[str], looks: int = 4) -> None:
    """Return when the slow model is being computed: it is what runs for longer than a moment."""
    running = 0
    while running < looks:
        assert run.poll() is None, run.communicate()
        shop.look()
        running = running + 1 if shop.statements else 0


def within_looks(shop: Shop, holds: Callable[[State], bool], looks: int = 60) -> None:
    """Until the engine says so, in as many of its own seconds at most."""
    for _ in range(looks):
        if holds(shop.place.state()):
            return
        shop.look()
    raise AssertionError(shop.place.state())
