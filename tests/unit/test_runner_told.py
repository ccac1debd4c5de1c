"""What a runner tells: a live table on a terminal, lines of JSON elsewhere; how long it waits."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from dbt_streamsql.cli.common.progress import Board, Lines
from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.runner.events import Event
from dbt_streamsql.runner.patience import LONGEST_SECONDS, Backoff
from dbt_streamsql.runner.project import DbtProject


def tick(at: float = 0.0, **told: Any) -> Event:
    empty = {"barrier": 7, "seconds": 1.5, "checked": 2, "tables": {}, "failed": {}}
    return Event("tick", at, {**empty, "waiting": {}, "backing_off": [], "sinks": {}, **told})


CITIES = {"mode": "append", "rows_inserted": 3, "rows_deleted": 1, "seconds": 0.5, "delay": 2.25}
FAILED = {"code": "BAD_RECORD", "message": "a record [bold]cannot[/bold] be read\nmore"}


SUNK = {"target": "topic out at kafka:9092", "barrier": 7, "seconds": 0.25, "failed": None}


def shown(board: Board) -> str:
    out = io.StringIO()
    Console(file=out, width=120, force_terminal=True, color_system=None).print(board.shown())
    return out.getvalue()


def test_a_terminal_shows_the_last_thing_that_is_known_of_each_table() -> None:
    board = Board()
    board.hear(Event("leading", 0.0, {"owner": "host:1:a"}))
    assert "leading host:1:a" in shown(board)
    board.hear(tick(tables={"lake.shop.cities": CITIES}))
    down = {"code": "SINK_UNREACHABLE", "message": "the brokers do not answer\nmore"}
    board.hear(tick(sinks={"lake.shop.out": SUNK, "lake.shop.down": {**SUNK, "failed": down}}))
    board.hear(tick(failed={"lake.shop.bad": FAILED}, waiting={"lake.shop.on": "lake.shop.bad"}))
    lines = {line.split()[0]: line.split() for line in shown(board).splitlines() if line.split()}
    assert lines["lake.shop.cities"] == [
        "lake.shop.cities",
        "append",
        "+3",
        "-1",
        "0.50",
        "2.2",
        "7",
    ]
    assert "a record [bold]cannot[/bold] be read" in " ".join(lines["lake.shop.bad"])
    assert "more" not in lines["lake.shop.bad"]
    assert "for lake.shop.bad" in " ".join(lines["lake.shop.on"])
    assert lines["lake.shop.out"][1:4] == ["delivered", "0.25", "7"]
    assert "the brokers do not answer" in " ".join(lines["lake.shop.down"])
    assert "barrier 7, 1.5 s, 2 tables" in shown(board)


def test_each_of_several_targets_has_a_line_of_its_own() -> None:
    board = Board()
    board.hear(Event("leading", 0.0, {"target": "sales", "owner": "host:1:a"}))
    board.hear(tick(target="stock", tables={"lake.shop.kept": CITIES}))
    assert "sales: leading host:1:a" in shown(board)
    assert "stock: barrier 7, 1.5 s, 2 tables" in shown(board)


def test_a_log_has_a_line_an_event_and_is_spared_most_that_had_nothing_to_do(
    capsys: pytest.CaptureFixture[str],
) -> None:
    lines = Lines()
    lines.tell(Event("leading", 0.0, {"owner": "host:1:a"}))
    for second in range(1, 100):
        lines.tell(tick(float(second)))
    lines.tell(tick(101.0, tables={"lake.shop.cities": CITIES}))
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [event["event"] for event in told] == ["leading", "tick", "tick"]
    assert told[0] == {"event": "leading", "at": "1970-01-01T00:00:00.000Z", "owner": "host:1:a"}
    assert told[1]["at"] == "1970-01-01T00:01:00.000Z"
    assert told[2]["tables"] == {"lake.shop.cities": CITIES}
    lines.tell(tick(102.0, sinks={"lake.shop.out": SUNK}))
    assert json.loads(capsys.readouterr().out)["sinks"] == {"lake.shop.out": SUNK}


def test_what_fails_again_and_again_rests_longer_and_longer() -> None:
    now = 0.0
    patience = Backoff(lambda: now)
    waits = [patience.failed("a") for _ in range(10)]
    assert 0.8 <= waits[0] <= 1
    assert waits[3] > 4 * waits[0]
    assert waits[-1] <= LONGEST_SECONDS
    assert patience.resting() == {"a"}
    assert patience.left("a") == pytest.approx(waits[-1])
    now = 61.0
    assert patience.resting() == set()
    assert patience.failed("a") > 40
    patience.succeeded(["a"])
    assert patience.failed("a") <= 1


class _Unlucky:
    """dbt reads the project, and then its run ends with an error of its own."""

    select = exclude = ()

    def maintained(self) -> dict[str, str]:
        return {"model.shop.a": "fqn:shop.a", "model.shop.b": "fqn:shop.b"}

    def run(self, selectors: list[str], *, seeds: bool) -> dict[str, str]:
        raise StreamSqlError("PROJECT_INVALID", "dbt could not run the project", given="locked")


def test_a_project_that_could_be_read_but_not_run_is_tried_again(tmp_path: Path) -> None:
    told = DbtProject(tmp_path, _Unlucky()).register()  # type: ignore[arg-type]
    assert told["models"] == 2
    assert set(told["failed"]) == {"model.shop.a", "model.shop.b"}
    assert "locked" in told["failed"]["model.shop.a"]


class _Recording:
    """Runs nothing, and keeps whether the seeds were to be loaded."""

    select = exclude = ()

    def __init__(self, fails: int = 0) -> None:
        self.seeds: list[bool] = []
        self.fails = fails

    def maintained(self) -> dict[str, str]:
        return {"model.shop.a": "fqn:shop.a"}

    def run(self, selectors: list[str], *, seeds: bool) -> dict[str, str]:
        self.seeds.append(seeds)
        return (
            {"seed.shop.items": "a row has too many cells"}
            if len(self.seeds) <= self.fails
            else {}
        )


@pytest.mark.parametrize(("wanted", "loads"), [(True, [True, False, True]), (False, [False] * 3)])
def test_seeds_are_loaded_at_first_and_when_a_csv_file_has_changed(
    tmp_path: Path, wanted: bool, loads: list[bool]
) -> None:
    recording = _Recording()
    project = DbtProject(tmp_path, recording, seeds=wanted)  # type: ignore[arg-type]
    (tmp_path / "seeds").mkdir()
    seed, model = tmp_path / "seeds" / "items.csv", tmp_path / "a.sql"
    seed.write_text("id\n1\n")
    project.register()
    model.write_text("select 1")
    project.register()
    seed.write_text("id\n1\n2\n")
    project.register()
    assert recording.seeds == loads


def test_seeds_that_could_not_be_loaded_are_loaded_by_the_retry(tmp_path: Path) -> None:
    recording = _Recording(fails=2)
    project = DbtProject(tmp_path, recording, seeds=True)  # type: ignore[arg-type]
    (tmp_path / "items.csv").write_text("id\n1\n")
    failed = [bool(project.register()["failed"]) for _ in range(4)]
    assert (failed, recording.seeds) == ([True, True, False, False], [True, True, True, False])
