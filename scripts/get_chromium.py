"""Install Chromium for the tests of the pages, unless there is one: by apt, as root on Debian.

Elsewhere install `chromium`, `chromium-browser` or `google-chrome` by the system's own means; the
tests find it on the PATH, and skip without it. Playwright's own download is not needed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def ensure() -> str:
    """The path of the browser; ends the program with what to do when there can be none."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is not None:
        return found
    apt = shutil.which("apt-get")
    if apt is None or os.geteuid() != 0:
        sys.exit(f"install one of {', '.join(NAMES)}, or run this as root on Debian or Ubuntu")
    subprocess.run([apt, "update"], check=True)
    # Without fonts every letter is an empty box.
    packages = ["chromium", "fonts-dejavu-core"]
    subprocess.run([apt, "install", "-y", "--no-install-recommends", *packages], check=True)
    return shutil.which("chromium") or sys.exit("apt installed no chromium")


if __name__ == "__main__":
    print(ensure())
