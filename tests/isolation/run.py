"""`make isolation READS=… SEED=…`: readers beside a writer that is killed, with the anomalies by
level. Exit code 1 when a level showed what it forbids."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from time import monotonic

from tests.isolation.isolation_campaign import Campaign
from tests.isolation.planted_isolation import READERS, WRITERS
from tests.support import spark_defaults
from tests.support.product import open_session
from tests.support.spark_way import settings


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--reads", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=60, help="stop then")
    parser.add_argument("--planted", default="", choices=["", *READERS, *WRITERS])
    given = parser.parse_args()
    began = monotonic()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        spark_defaults.use()
        spark = open_session(settings(str(place / "unused")))
        campaign = Campaign(
            spark, place, given.reads, given.seed, given.planted, 60 * given.minutes
        )
        findings = campaign.run()
        spark.stop()
    print(f"{campaign}\n{monotonic() - began:.0f} s")
    for (level, kind), told in findings.forbidden.items():
        print(f"forbidden at {level}: {kind}: {told}")
    return 1 if findings.forbidden else 0


if __name__ == "__main__":
    sys.exit(main())
