"""Fetch Prometheus for the tests of `/metrics` and the alerts, unless there is one.

Takes the Debian or Ubuntu package and unpacks it into the cache: nothing is installed, and no
service starts. Elsewhere put `prometheus` and `promtool` on the PATH; the tests skip without them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

PACKAGE = "prometheus"
NAMES = ("prometheus", "promtool")


def programs(cache: Path) -> dict[str, str]:
    """The paths of those programs that there are, by name."""
    places = os.pathsep.join([os.environ.get("PATH", ""), str(_unpacked(cache))])
    return {name: found for name in NAMES if (found := shutil.which(name, path=places))}


def ensure(cache: Path) -> dict[str, str]:
    """All of them; ends the program with what to do when they cannot be had."""
    found = programs(cache)
    if len(found) == len(NAMES):
        return found
    apt = shutil.which("apt-get")
    if apt is None:
        sys.exit(f"put {' and '.join(NAMES)} on the PATH, or run this on Debian or Ubuntu")
    if os.geteuid() == 0:
        subprocess.run([apt, "update"], check=True)
    with tempfile.TemporaryDirectory() as folder:
        # `apt-get` gives up its rights before it writes there.
        Path(folder).chmod(0o777)
        subprocess.run([apt, "download", PACKAGE], cwd=folder, check=True)
        (package,) = Path(folder).glob("*.deb")
        target = cache / PACKAGE
        target.mkdir(parents=True, exist_ok=True)
        unpack = [shutil.which("dpkg-deb") or "dpkg-deb", "-x", str(package), str(target)]
        subprocess.run(unpack, check=True)
    found = programs(cache)
    return found if len(found) == len(NAMES) else sys.exit(f"the package {PACKAGE} lacks them")


def _unpacked(cache: Path) -> Path:
    return cache / PACKAGE / "usr" / "bin"


if __name__ == "__main__":
    from dbt_streamsql.cache import cache_folder

    for name, path in ensure(cache_folder()).items():
        print(f"{name}: {path}")
