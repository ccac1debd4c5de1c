"""`make release`: what is published, built and checked.

    python scripts/release.py [--quick]

dist/packages/   the wheel and the sdist
dist/notes.md    the notes of the version, from CHANGELOG.md

Checks that the metadata is accepted (`twine check --strict`), that the version of a tag
(`GITHUB_REF_NAME`) is that of the package, and that a newcomer who installs the wheel can follow
the README; `--quick` leaves the newcomer out.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    version = _version()
    tag = os.environ.get("GITHUB_REF_NAME", "")
    if tag.startswith("v") and tag != f"v{version}":
        print(f"the tag is {tag}, and the package is of version {version}")
        return 1
    shutil.rmtree(DIST, ignore_errors=True)
    packages = DIST / "packages"
    packages.mkdir(parents=True)
    _run("-m", "hatchling", "build", "-d", str(packages))
    _run("-m", "twine", "check", "--strict", *map(str, sorted(packages.iterdir())))
    if not given.quick:
        _run("scripts/newcomer.py", "--page", "README.md")
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    (DIST / "notes.md").write_text(notes_of(changelog, version), encoding="utf-8")
    for file in sorted(packages.iterdir()):
        print(f"{file.relative_to(ROOT)}, {file.stat().st_size / 1e6:.1f} MB")
    print(f"{(DIST / 'notes.md').relative_to(ROOT)} of version {version}")
    return 0


def notes_of(changelog: str, version: str) -> str:
    """The part of the changelog about a version, or what is unreleased when it has none."""
    parts = re.split(r"^## ", changelog, flags=re.MULTILINE)[1:]
    named = {part.split()[0].strip("[]v"): part.partition("\n")[2].strip() for part in parts}
    return named.get(version, named.get("Unreleased", "")) + "\n"


def _version() -> str:
    text = (ROOT / "dbt_streamsql" / "__version__.py").read_text(encoding="utf-8")
    found = re.search(r'version = "([^"]+)"', text)
    assert found is not None
    return found[1]


def _run(*command: str) -> None:
    subprocess.run([sys.executable, *command], cwd=ROOT, check=True)


if __name__ == "__main__":
    sys.exit(main())
