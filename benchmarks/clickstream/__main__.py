"""`make bench WHAT=clickstream`: the highest rate that the example sustains, beside Flink.

python -m benchmarks.clickstream --minutes 10 --flink     (docs/benchmarks.md)

Each system first climbs through the rates, in one process, until PostgreSQL is too late; then it
runs anew for `--minutes` at the highest rate at which it was not, or a lower one when it does not
hold that for so long. What is known is written to `--json` after every step.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.clickstream import services as of
from benchmarks.clickstream.services import Lags, Services
from benchmarks.clickstream.systems import Flink, Ours, System
from benchmarks.progress import Progress
from benchmarks.view import IDLE_LOAD
from integration_tests.clickstream.produce import Events, Sender

DRAIN = 180
"""Seconds for what is left when no more events come."""


class Counted(Events):
    """Events that remember by how many they were taken: so they can be made again."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.counts: list[int] = []

    def take(self, count: int, first_ms: int, last_ms: int) -> dict[str, list[str]]:
        self.counts.append(count)
        return super().take(count, first_ms, last_ms)

    def expected(self) -> dict[str, tuple[int, int]]:
        """Bids and the sum of their prices, by channel."""
        again = Events(self.seed)
        found: dict[str, tuple[int, int]] = {}
        for count in self.counts:
            for text in again.take(count, 0, 1)["bids"]:
                bid = json.loads(text)
                bids, total = found.get(bid["channel"], (0, 0))
                found[bid["channel"]] = (bids + 1, total + bid["price"])
        return found


@dataclass(frozen=True)
class Held:
    """One rate for some minutes. Lags are in seconds.

    `behind`: seconds by which the events themselves were late: the machine could not make more.
    """

    system: str
    kind: str
    rate: int
    minutes: float
    median: float
    p95: float
    most: float
    behind: float
    drained: float | None = None
    right: bool | None = None
    differing: tuple[str, ...] = ()
    epochs: int = 0
    epoch_seconds: float = 0.0
    costs: dict[str, float] | None = None

    def holds(self, limit: float) -> bool:
        return self.p95 <= limit and self.behind < 1 and self.right is not False


def main() -> int:
    """1 when rows are wrong, 0 otherwise."""
    given = _arguments()
    console = Console()
    say = Progress(console)
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0
    if load > IDLE_LOAD:
        say(f"the machine is not idle (load {load:.1f}): do not publish this run")
    given.folder.mkdir(parents=True, exist_ok=True)
    systems: list[System] = [Ours(given.folder, given.memory)]
    if given.flink:
        systems.append(Flink(given.folder, given.flink_state, given.memory))
    systems = [system for system in systems if system.name in given.systems]
    results: list[Held] = []

    def keep(held: Held) -> None:
        results.append(held)
        body = {"load": load, "seconds": say.seconds, "results": [asdict(one) for one in results]}
        given.json.parent.mkdir(parents=True, exist_ok=True)
        given.json.write_text(json.dumps(body, indent=1), "utf-8")

    with of.started() as services:
        for _ in range(given.rounds):
            for system in systems:
                _climb(system, services, given, say, keep)
            for system in systems:
                _stay(system, services, given, say, keep, results)
    _show(console, results, given.lag)
    console.print(f"\n{say.seconds} seconds in all; everything measured is in {given.json}")
    return 1 if any(one.right is False or one.differing for one in results) else 0


def _climb(
    system: System, services: Services, given: argparse.Namespace, say: Any, keep: Any
) -> None:
    """Rate after rate in one process, until one is too much."""
    say(f"{system.name}: starting")
    with system.running(services), Lags(services) as lags:
        sender = Sender(services.broker.address, Counted(given.seed))
        say(f"{system.name}: warming up for {given.warm_up:.0f} s")
        sender.run(given.rates[0], given.warm_up)
        for rate in given.rates:
            held = _hold(system, "climb", sender, lags, rate, given.probe * 60, given)
            keep(held)
            say(f"{system.name}: {_line(held)}")
            if not held.holds(given.lag):
                break


def _stay(
    system: System,
    services: Services,
    given: argparse.Namespace,
    say: Any,
    keep: Any,
    results: list[Held],
) -> None:
    """The highest rate that held, anew, and for long; a lower one when it does not hold."""
    climbed = [one for one in results if one.system == system.name and one.kind == "climb"]
    rates = sorted({one.rate for one in climbed if one.holds(given.lag)}, reverse=True)
    if not rates:
        say(f"{system.name}: no rate was held, the lowest one is taken")
        rates = [given.rates[0]]
    for rate in rates:
        say(f"{system.name}: {rate:,} events a second for {given.minutes:g} minutes")
        with system.running(services), Lags(services) as lags:
            events = Counted(given.seed)
            sender = Sender(services.broker.address, events)
            sender.run(rate, given.warm_up)
            held = _hold(system, "long", sender, lags, rate, given.minutes * 60, given)
            say(f"{system.name}: {_line(held)}; letting it finish")
            wanted = events.expected()
            drained = _drain(services, sum(bids for bids, _ in wanted.values()))
            right = services.delivered() == wanted
        say(f"{system.name}: comparing its views with their queries")
        differing = tuple(system.differing()) if given.verify else ()
        held = Held(**{**asdict(held), "drained": drained, "right": right, "differing": differing})
        keep(held)
        say(f"{system.name}: {_line(held)}, right: {right}, views that differ: {differing}")
        if held.holds(given.lag):
            break


def _hold(
    system: System,
    kind: str,
    sender: Sender,
    lags: Lags,
    rate: int,
    seconds: float,
    given: argparse.Namespace,
) -> Held:
    """One rate for some time. The first lags of a rate are those of the rate before."""
    began = time.time()
    epochs = len(system.told())
    behind = sender.run(rate, seconds)
    found = lags.since(began + min(given.lag, seconds / 4)) or [float("inf")]
    ordered = sorted(found)
    ticks = system.told()[epochs:]
    return Held(
        system.name,
        kind,
        rate,
        round((time.time() - began) / 60, 2),
        statistics.median(ordered),
        ordered[int(len(ordered) * 0.95)],
        ordered[-1],
        behind,
        epochs=len(ticks),
        epoch_seconds=statistics.median(t["seconds"] for t in ticks) if ticks else 0.0,
        costs=_costs(ticks),
    )


def _costs(ticks: list[dict[str, Any]]) -> dict[str, float]:
    """Mean seconds of a table in an epoch, the most first. Tables are at work side by side."""
    sums: dict[str, float] = {}
    for tick in ticks:
        named = {**tick.get("tables", {}), **tick.get("sinks", {})}
        for name, told in named.items():
            short = name.rpartition(".")[2]
            sums[short] = sums.get(short, 0.0) + told.get("seconds", 0.0)
    ordered = sorted(sums.items(), key=lambda pair: -pair[1])
    return {name: round(value / len(ticks), 3) for name, value in ordered}


def _drain(services: Services, bids: int) -> float | None:
    """Seconds until PostgreSQL has all of them; None when that took too long."""
    began = time.monotonic()
    while time.monotonic() - began < DRAIN:
        if services.bids() >= bids:
            return round(time.monotonic() - began, 1)
        time.sleep(0.5)
    return None


def _line(held: Held) -> str:
    text = (
        f"{held.rate:,}/s for {held.minutes:g} min: lag {held.median:.1f} s, "
        f"p95 {held.p95:.1f}, most {held.most:.1f}"
    )
    if held.behind >= 1:
        text += f", the producer was {held.behind:.1f} s late"
    return text + (f", {held.epochs} epochs of {held.epoch_seconds:.1f} s" if held.epochs else "")


def _show(console: Console, results: list[Held], limit: float) -> None:
    table = Table(title=f"PostgreSQL's lag behind the newest bid; held below {limit:g} s: ✓")
    for column in (
        "system",
        "",
        "events/s",
        "minutes",
        "median",
        "p95",
        "most",
        "drained",
        "right",
    ):
        table.add_column(column, justify="left" if column in ("system", "") else "right")
    for one in results:
        table.add_row(
            one.system,
            one.kind,
            f"{one.rate:,}" + (" ✓" if one.holds(limit) else ""),
            f"{one.minutes:g}",
            f"{one.median:.1f}",
            f"{one.p95:.1f}",
            f"{one.most:.1f}",
            "" if one.kind == "climb" else str(one.drained),
            "" if one.right is None else str(one.right and not one.differing),
        )
    console.print(table)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="benchmarks.clickstream",
        description=(__doc__ or "").split("\n")[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    option = parser.add_argument
    option("--minutes", type=float, default=10, help="of the long run")
    option("--probe", type=float, default=1.5, help="minutes at each rate of the climb")
    option("--warm-up", type=float, default=120, help="seconds at the first rate, not counted")
    option(
        "--rates",
        type=lambda text: sorted(map(int, text.split(","))),
        default="500,1000,2000,4000,8000,16000,32000,64000",
        help="events a second",
    )
    option("--lag", type=float, default=15, help="seconds: what a rate must stay below, at p95")
    option("--rounds", type=int, default=1, help="of all systems, one after the other")
    option("--flink", action="store_true", help="Flink too")
    option("--systems", default="streamsql,flink", help="some of them")
    option("--flink-state", choices=("hashmap", "rocksdb"), default="hashmap", help="of Flink")
    option("--memory", default="3g", help="heap of each system")
    option("--seed", type=int, default=1, help="of the events")
    option("--no-verify", dest="verify", action="store_false", help="do not compare the views")
    option(
        "--folder",
        type=lambda text: Path(text).resolve(),
        default="target/clickstream",
        help="of the project's copy and of Flink's environment, which stays for the next run",
    )
    option(
        "--json", type=Path, default=Path("target/clickstream.json"), help="results, as they come"
    )
    given = parser.parse_args()
    given.folder = Path(given.folder).resolve()
    return given


if __name__ == "__main__":
    sys.exit(main())
