"""`make simulate SEEDS=… SEED=…`: many seeds with a tally, or one with its trace. Exit code 1 when
an invariant broke, or when many seeds have not met a fault that they should."""

from __future__ import annotations

import argparse
import sys
from time import monotonic

from tests.simulator.sim_campaign import ENOUGH, SHOWN, Tally, campaigns, told


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0, help="the first one")
    parser.add_argument("--jobs", type=int, default=1, help="processes side by side")
    given = parser.parse_args()
    began, tally, shown = monotonic(), Tally(), 0
    for part in campaigns(given.seed, given.seeds, given.jobs):
        tally.merge(part)
        for outcome in part.failed[: SHOWN - shown]:
            print(told(outcome), flush=True)
            shown += 1
        if sys.stdout.isatty():
            print(f"\r{tally.seeds:,} seeds, {len(tally.failed)} failed", end="\r", flush=True)
    if given.seeds == 1 and not tally.failed:
        print("\n".join(tally.trace))
    print(f"{tally}; {monotonic() - began:.0f} s")
    if tally.failed:
        print(f"failed: {' '.join(str(outcome.seed) for outcome in tally.failed)}")
    unmet = tally.unmet() if tally.seeds >= ENOUGH else []
    if unmet:
        print(f"not met: {', '.join(unmet)}")
    return 1 if tally.failed or unmet else 0


if __name__ == "__main__":
    sys.exit(main())
