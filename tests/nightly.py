"""`make nightly`: the campaigns of `tests/campaigns.yml`, one after the other, and what came of each.

The output of each lies in `.nightly/NAME.log`. The exit code is 1 when one of them failed.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

import yaml

ROOT = Path(__file__).parents[1]
LOGS = ROOT / ".nightly"
_OF_MAKE = ("ARGS", "MAKEFLAGS", "MFLAGS", "MAKELEVEL")
"""What `make nightly ARGS=…` hands on: a campaign that is a `make` would take it for its own."""


@dataclass(frozen=True)
class Campaign:
    """A command, and the minutes that it takes on two idle cores."""

    name: str
    command: str
    minutes: float


def campaigns() -> list[Campaign]:
    text = (ROOT / "tests" / "campaigns.yml").read_text(encoding="utf-8")
    return [Campaign(**given) for given in yaml.safe_load(text)]


def run(campaign: Campaign) -> int:
    """Run one, its output in a file; print how it ended and its last line."""
    print(f"{campaign.name}: {campaign.command} (about {campaign.minutes:g} min)", flush=True)
    began, log = monotonic(), LOGS / f"{campaign.name}.log"
    own = {name: value for name, value in os.environ.items() if name not in _OF_MAKE}
    with log.open("w") as out:
        code = subprocess.run(
            ["bash", "-c", campaign.command],  # noqa: S607
            cwd=ROOT,
            env=own,
            stdout=out,
            stderr=subprocess.STDOUT,
            check=False,
        ).returncode
    took = (monotonic() - began) / 60
    last = (log.read_text(errors="replace").splitlines() or [""])[-1]
    print(f"{campaign.name}: exit code {code}, {took:.1f} min: {last}", flush=True)
    return code


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", action="append", default=[], help="the name of a campaign")
    parser.add_argument("--list", action="store_true", help="print them and run none")
    given = parser.parse_args(arguments)
    chosen = [each for each in campaigns() if not given.only or each.name in given.only]
    if unknown := set(given.only) - {each.name for each in chosen}:
        parser.error(f"no such campaign: {', '.join(sorted(unknown))}")
    if given.list:
        for each in chosen:
            print(f"{each.name:12} {each.minutes:4g} min  {each.command}")
        print(f"{'all':12} {sum(each.minutes for each in chosen):4g} min")
        return 0
    LOGS.mkdir(exist_ok=True)
    failed = [each.name for each in chosen if run(each)]
    print(f"{len(chosen) - len(failed)} of {len(chosen)} campaigns passed", *failed)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
