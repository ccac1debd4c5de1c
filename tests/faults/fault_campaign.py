"""Random faults, one after another, and their tally."""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random

from tests.faults import fault_disk
from tests.faults.fault_kinds import KINDS, ON_A_DISK
from tests.faults.fault_scenarios import SCENARIOS
from tests.faults.fault_stages import Stages

WEIGHTS = {
    "kill": 8,
    "kill-spark": 1,
    "kill-twice": 3,
    "zombie": 4,
    "pause": 1,
    "full": 5,
    "read-only": 3,
}
"""How often each kind is drawn."""


@dataclass(frozen=True)
class Fault:
    """One fault; its text repeats it."""

    kind: str
    scenario: str
    number: int

    @classmethod
    def parse(cls, text: str) -> Fault:
        kind, scenario, number = text.split("/")
        return cls(kind, scenario, int(number))

    def __str__(self) -> str:
        return f"{self.kind}/{self.scenario}/{self.number}"

    @property
    def impossible(self) -> str:
        """Why it cannot be had here; '' when it can."""
        return fault_disk.unavailable() if self.kind in ON_A_DISK else ""

    def run(self, stages: Stages) -> str:
        """Meet it and check; the step that it met."""
        return KINDS[self.kind](stages, self.scenario, Random(str(self)))

    def meet(self, stages: Stages) -> Met:
        """Run it; what came of it."""
        if self.impossible:
            return Met(str(self), skipped=self.impossible)
        try:
            return Met(str(self), self.run(stages))
        except Exception:  # noqa: BLE001 - whatever a fault led to is a finding
            return Met(str(self), broken=traceback.format_exc())


@dataclass(frozen=True)
class Met:
    """What came of a fault: the step that it met, or why it was skipped, or what broke."""

    fault: str
    step: str = ""
    skipped: str = ""
    broken: str = ""


@dataclass
class Tally:
    """Faults by kind, by scenario and by step; those that broke something, with what it was."""

    kinds: Counter[str] = field(default_factory=Counter)
    scenarios: Counter[str] = field(default_factory=Counter)
    steps: Counter[str] = field(default_factory=Counter)
    skipped: Counter[str] = field(default_factory=Counter)
    failed: dict[str, str] = field(default_factory=dict)

    def count(self, met: Met) -> None:
        fault = Fault.parse(met.fault)
        if met.skipped:
            self.skipped[f"{fault.kind}: {met.skipped}"] += 1
        elif met.broken:
            self.failed[met.fault] = met.broken
        else:
            self.kinds[fault.kind] += 1
            self.scenarios[fault.scenario] += 1
            self.steps[met.step] += 1

    @property
    def met(self) -> int:
        return self.kinds.total() + len(self.failed)

    def __str__(self) -> str:
        met = f"faults: {self.met}, at {len(self.steps)} different points"
        lines = [f"{met}, failures: {len(self.failed)}"]
        for name in ("kinds", "scenarios", "steps", "skipped"):
            counts: Counter[str] = getattr(self, name)
            if counts:
                told = ", ".join(f"{what} {n}" for what, n in sorted(counts.items()))
                lines.append(f"  {name}: {told}")
        return "\n".join(lines)


def draw(seed: int, count: int) -> Iterator[Fault]:
    """The faults of a campaign."""
    rng = Random(seed)
    kinds, weights = list(WEIGHTS), list(WEIGHTS.values())
    for _ in range(count):
        kind = rng.choices(kinds, weights)[0]
        yield Fault(kind, rng.choice(list(SCENARIOS)), rng.randrange(1_000_000))
