"""Medians, ratios and targets: as tables for people, as JSON for comparing runs."""

from __future__ import annotations

import os
import platform
import statistics
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyspark
from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

from benchmarks.contestants import ALL
from benchmarks.data import KEYS
from benchmarks.measure import Options, Result, Sample
from dbt_streamsql.__version__ import version
from dbt_streamsql.runtime.spark.jars import connector_jars, embedded_jars

APPENDS, MERGE, REFRESH = "appends", "faster than MERGE", "faster than full"
_UNIT = {APPENDS: "append", MERGE: "merge", REFRESH: "full"}


@dataclass(frozen=True)
class Target:
    """What one epoch must reach: at most `limit` appends, or at least `limit` times faster.

    The goal is half the time of that.
    """

    groups: int
    keys: str
    metric: str
    limit: float

    @property
    def goal(self) -> float:
        return self.limit / 2 if self.metric == APPENDS else self.limit * 2

    def met(self, reached: float, limit: float) -> bool:
        return reached <= limit if self.metric == APPENDS else reached >= limit


TARGETS = (
    Target(1_000_000, "scattered", APPENDS, 8),
    Target(1_000_000, "recent", APPENDS, 8),
    Target(10_000_000, "scattered", APPENDS, 12),
    Target(10_000_000, "scattered", MERGE, 2.5),
    Target(10_000_000, "scattered", REFRESH, 3.5),
    Target(10_000_000, "recent", APPENDS, 8),
)


@dataclass(frozen=True)
class Figure:
    """One contestant at one size and kind of keys: seconds, jobs, and ratios by metric."""

    groups: int
    keys: str
    contestant: str
    median: float
    lowest: float
    highest: float
    jobs: int
    ratios: dict[str, float]
    notes: tuple[str, ...]


def figures(result: Result) -> list[Figure]:
    """Medians over the rounds after the first, in the contestants' order."""
    found = []
    for keys in KEYS:
        timed = {
            contestant.name: [
                sample
                for sample in result.samples
                if (sample.keys, sample.contestant) == (keys, contestant.name) and sample.round
            ]
            for contestant in ALL
        }
        medians = {
            name: statistics.median(s.seconds for s in samples)
            for name, samples in timed.items()
            if samples
        }
        found += [_figure(result.groups, keys, name, timed[name], medians) for name in medians]
    return found


def _figure(
    groups: int, keys: str, name: str, samples: Sequence[Sample], medians: dict[str, float]
) -> Figure:
    seconds = [sample.seconds for sample in samples]
    own = medians[name]
    ratios = {
        metric: own / medians[unit] if metric == APPENDS else medians[unit] / own
        for metric, unit in _UNIT.items()
        if unit in medians
    }
    return Figure(
        groups,
        keys,
        name,
        own,
        min(seconds),
        max(seconds),
        round(statistics.median(sample.jobs for sample in samples)),
        ratios,
        tuple(sorted({sample.note for sample in samples if sample.note})),
    )


def show(console: Console, result: Result, options: Options) -> None:
    """One table per size; the targets stand in our own rows."""
    title = f"{options.size:,} changed rows, a view of {result.groups:,} groups"
    table = Table(title=title, title_justify="left")
    table.add_column("keys")
    table.add_column("", min_width=28)
    for heading in ("seconds", "from - to", "jobs", *_UNIT):
        table.add_column(heading, justify="right")
    labels = {contestant.name: contestant.label for contestant in ALL}
    shown = figures(result)
    for position, figure in enumerate(shown):
        after = shown[position + 1] if position + 1 < len(shown) else None
        notes = f" ({', '.join(figure.notes)})" if figure.notes else ""
        table.add_row(
            figure.keys,
            labels[figure.contestant] + notes,
            f"{figure.median:.2f}",
            f"{figure.lowest:.2f} - {figure.highest:.2f}",
            str(figure.jobs),
            *[_cell(figure, metric) for metric in _UNIT],
            style="bold" if figure.contestant == "epoch" else None,
            end_section=after is not None and after.keys != figure.keys,
        )
    console.print()
    console.print(table)
    for name, rows in result.differing.items():
        verdict = f"[red]{rows:,} rows differ[/red]" if rows else "equal"
        console.print(f"result of {labels[name]}: {verdict}")


def _cell(figure: Figure, metric: str) -> str:
    if metric not in figure.ratios:
        return "-"
    lines = [f"{figure.ratios[metric]:.1f}"]
    for target in _targets(figure, metric):
        sign = "≤" if metric == APPENDS else "≥"
        for word, limit in (("target", target.limit), ("goal", target.goal)):
            met = target.met(figure.ratios[metric], limit)
            colour, verdict = ("green", "met") if met else ("red", "missed")
            lines.append(f"[{colour}]{word} {sign} {limit:g}: {verdict}[/{colour}]")
    return "\n".join(lines)


def _targets(figure: Figure, metric: str = "") -> list[Target]:
    wanted = (figure.groups, figure.keys)
    if figure.contestant != "epoch":
        return []
    return [
        target
        for target in TARGETS
        if (target.groups, target.keys) == wanted and metric in ("", target.metric)
    ]


def as_json(results: Iterable[Result], options: Options, facts: dict[str, Any]) -> dict[str, Any]:
    """Everything that was measured, with the machine that it was measured on."""
    results = list(results)
    found = [figure for result in results for figure in figures(result)]
    return {
        "facts": facts,
        "options": asdict(options),
        "figures": [asdict(figure) for figure in found],
        "targets": [
            {
                **asdict(target),
                "goal": target.goal,
                "reached": reached,
                "met": target.met(reached, target.limit),
                "goal_met": target.met(reached, target.goal),
            }
            for figure in found
            for target in _targets(figure)
            if (reached := figure.ratios.get(target.metric)) is not None
        ],
        "differing": {str(result.groups): result.differing for result in results},
        "samples": [
            {"groups": result.groups, **asdict(sample)}
            for result in results
            for sample in result.samples
        ],
    }


def machine(spark: SparkSession) -> dict[str, Any]:
    """Facts of the machine and the software. `load` is of the last minute, before the run."""
    jvm: Any = spark._jvm  # noqa: SLF001
    return {
        "date": time.strftime("%Y-%m-%d"),
        "system": platform.platform(),
        "processor": _processor(),
        "cores": spark.sparkContext.defaultParallelism,
        "memory_gib": _memory_gib(),
        "load": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
        "driver_memory": spark.conf.get("spark.driver.memory", None),
        "python": platform.python_version(),
        "java": str(jvm.java.lang.System.getProperty("java.version")),
        "spark": pyspark.__version__,
        "jars": [jar.coordinate for jar in (*embedded_jars(), *connector_jars("delta"))],
        "dbt_streamsql": version,
    }


def peak_memory_gib(spark: SparkSession) -> float | None:
    """The largest resident size that the driver's JVM has had so far; Linux only."""
    jvm: Any = spark._jvm  # noqa: SLF001
    status = Path(f"/proc/{jvm.java.lang.ProcessHandle.current().pid()}/status")
    if not status.is_file():
        return None
    kilobytes = _field(status, "VmHWM")
    return round(int(kilobytes.split()[0]) / 2**20, 2) if kilobytes else None


def _processor() -> str:
    return _field(Path("/proc/cpuinfo"), "model name") or platform.processor()


def _memory_gib() -> float | None:
    if not hasattr(os, "sysconf"):
        return None
    return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)


def _field(file: Path, name: str) -> str:
    """The value of the first line `name : value`."""
    if not file.is_file():
        return ""
    for line in file.read_text().splitlines():
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    return ""
