"""What readers were told, and which of it their level forbids."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import SparkSession

from tests.isolation import isolation_tables as bank
from tests.isolation.isolation_tables import Answer

REALLY = 20
"""Every so many answers is one that Spark has computed as a whole."""

ALLOWED = {"read_uncommitted": {"fractured", "dirty", "lost"}}
"""Anomalies by level; the other levels allow none. Nor may an answer differ from what is
remembered of its versions."""


class Contents:
    """The rows of `LOOKS` by the version that was looked at: a version never changes, so that one
    look is enough. Every so often the whole query runs, and must agree."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[Any, ...]] = {}
        self._lock = threading.Lock()

    def answer(self, spark: SparkSession, text: str, *, really: bool) -> tuple[Answer, bool]:
        """The answer of a rewritten query, and whether it agrees with what is remembered."""
        found = bank.versions(text)
        if found is None:
            return Answer.of(spark.sql(text).first()), True
        rows = [
            self._look(spark, look.format(version))
            for version, look in zip(found, bank.LOOKS.values(), strict=True)
        ]
        remembered = Answer.of(value for row in rows for value in row)
        if not really:
            return remembered, True
        computed = Answer.of(spark.sql(text).first())
        return computed, computed == remembered

    def _look(self, spark: SparkSession, text: str) -> tuple[Any, ...]:
        with self._lock:
            known = self._known.get(text)
        if known is None:
            known = tuple(spark.sql(text).first())
            with self._lock:
                self._known[text] = known
        return known


@dataclass
class Findings:
    """Answers, real queries and anomalies by level; `told` has the first of each kind of anomaly."""

    reads: Counter[str] = field(default_factory=Counter)
    really: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    anomalies: Counter[tuple[str, str]] = field(default_factory=Counter)
    told: dict[tuple[str, str], str] = field(default_factory=dict)
    _shown: dict[str, Counter[int]] = field(default_factory=lambda: defaultdict(Counter))
    _newest: Counter[str] = field(default_factory=Counter)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def forbidden(self) -> dict[tuple[str, str], str]:
        """The anomalies that a level does not allow, with an example of each."""
        return {
            (level, kind): told
            for (level, kind), told in self.told.items()
            if kind not in ALLOWED.get(level, ())
        }

    def read(self, level: str, answer: Answer, *, agrees: bool, really: bool) -> None:
        """One answer, in the order in which the level's reader got them."""
        with self._lock:
            self.reads[level] += 1
            self.really[level] += really
        if not agrees:
            self.found(level, "unlike its versions", str(answer))
        if answer.fractured:
            self.found(level, "fractured", str(answer))
            return
        with self._lock:
            self._shown[level][answer.seen] += 1
            newest, self._newest[level] = self._newest[level], answer.seen
        if answer.seen < newest:
            self.found(level, "lost", f"{newest}, and then {answer}")

    def repeated(self, level: str, first: Answer, now: Answer) -> None:
        """The answer of a reader that holds its barrier."""
        if first != now:
            self.found(level, "changed", f"{first}, and then {now}")

    def committed(self, numbers: Collection[int]) -> None:
        """When all is over: which numbers of steps some committed barrier has."""
        for level, shown in self._shown.items():
            for number in sorted(set(shown) - set(numbers)):
                for _ in range(shown[number]):
                    self.found(level, "dirty", f"{number} steps are of no committed barrier")

    def found(self, level: str, kind: str, told: str) -> None:
        with self._lock:
            self.anomalies[level, kind] += 1
            self.told.setdefault((level, kind), told)

    def refuse(self, level: str, why: str) -> None:
        with self._lock:
            self.refused[f"{level}: {why}"] += 1

    def __str__(self) -> str:
        lines = []
        for level in sorted(self.reads):
            kinds = {kind: n for (at, kind), n in sorted(self.anomalies.items()) if at == level}
            told = ", ".join(f"{n} {kind}" for kind, n in kinds.items()) or "no anomaly"
            lines.append(
                f"  {level}: {self.reads[level]} reads, {self.really[level]} of them as one "
                f"query by Spark; {told}"
            )
        refused = ", ".join(f"{why} {n}" for why, n in sorted(self.refused.items()))
        return "\n".join([*lines, f"  not answered: {refused or 'none'}"])
