"""Runs a part of a verb and keeps how long it took: `timed.py PART COMMAND…`; alone, `timed.py`
prints the seconds of the parts so far.

The seconds lie in `.seconds.json`, so that a verb made of several parts can tell of all of them.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

KEPT = Path(__file__).parents[1] / ".seconds.json"


def main(part: str = "", *command: str) -> int:
    seconds = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    code = 0
    if part:
        began = time.monotonic()
        code = subprocess.run(command, check=False).returncode
        seconds[part] = round(time.monotonic() - began)
        KEPT.write_text(json.dumps(seconds))
    print("seconds: " + ", ".join(f"{name} {took}" for name, took in seconds.items()))
    return code


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
