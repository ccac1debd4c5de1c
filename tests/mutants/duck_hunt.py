"""Small scenarios of the differential tier until a view is wrong: then exit code 1.

`python duck_hunt.py OPERATORS SEED SECONDS`; the last line of the output holds the seed and what
was wrong: kind, text and scenario.
"""

from __future__ import annotations

import json
import sys
from time import monotonic

from tests.differential.duck_campaign import play
from tests.differential.duck_grammar import scenario

VIEWS, ROUNDS = 6, 8
"""Smaller than in a campaign: the first wrong view ends the hunt."""


def main(operators: str, seed: int, seconds: float) -> int:
    only = tuple(filter(None, operators.split(",")))
    until = monotonic() + seconds
    while monotonic() < until:
        failures = play(scenario(seed, VIEWS, ROUNDS, only))
        if failures:
            print(json.dumps([seed, [(f.kind, f.text, f.scenario.to_json()) for f in failures]]))
            return 1
        seed += 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3])))
