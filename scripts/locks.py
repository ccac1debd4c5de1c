"""Write the locks again, the exact versions that the project is tested with: `make locks`.

    python scripts/locks.py [--upgrade]

scripts/locks/highest.txt   the newest versions that pyproject.toml allows: `make install`
scripts/locks/lowest.txt    the package's own dependencies at their lower bounds, the newest of
                            everything else: the version set `lowest` (scripts/versions.py)

A version that is written there stays as long as it fits; `--upgrade` takes the newest of all. Both
are for every Python that the project supports, and pip reads them with `--constraint`.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[1]
HIGHEST = ROOT / "scripts" / "locks" / "highest.txt"
LOWEST = ROOT / "scripts" / "locks" / "lowest.txt"
EXTRAS = ("service", "openlineage", "postgres")
"""What users install. The lower bounds of `dev` and `docs`, the project's tools, do not count."""


def main(*arguments: str) -> int:
    _write(HIGHEST, "the newest versions that pyproject.toml allows", *arguments)
    with tempfile.TemporaryDirectory() as folder:
        bounds = Path(folder) / "bounds.txt"
        pins = (f"{needed.name}=={lower_bound(needed)}\n" for needed in of_users(project()))
        bounds.write_text("".join(pins), encoding="utf-8")
        what = "the lower bounds of the package's own dependencies"
        _write(LOWEST, what, "--constraint", str(bounds), *arguments)
    return 0


def project() -> dict[str, Any]:
    """The table `project` of pyproject.toml."""
    found = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert isinstance(found, dict)
    return found


def of_users(table: dict[str, Any]) -> Iterator[Requirement]:
    """The direct dependencies of the package and of its EXTRAS; `table`: see `project`."""
    yield from map(Requirement, table["dependencies"])
    for extra in EXTRAS:
        yield from map(Requirement, table["optional-dependencies"][extra])


def of_all(table: dict[str, Any]) -> Iterator[Requirement]:
    """The direct dependencies of the package and of every extra; `table`: see `project`."""
    every = [table["dependencies"], *table["optional-dependencies"].values()]
    for needed in (Requirement(text) for group in every for text in group):
        if needed.name != table["name"]:
            yield needed


def lower_bound(needed: Requirement) -> str:
    """The version behind `>=`; a dependency without one is an error."""
    (found,) = (each.version for each in needed.specifier if each.operator == ">=")
    return found


def locked(file: Path) -> dict[str, list[str]]:
    """The versions of each package; several where they differ by Python."""
    found: dict[str, list[str]] = {}
    for line in file.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            pin = Requirement(line)
            (version,) = (each.version for each in pin.specifier)
            found.setdefault(canonicalize_name(pin.name), []).append(version)
    return found


def _write(file: Path, what: str, *arguments: str) -> None:
    oldest = project()["requires-python"].removeprefix(">=")
    command = [
        *(sys.executable, "-m", "uv", "pip", "compile", "pyproject.toml", "--extra", "dev"),
        *("--universal", "--python-version", oldest, "--output-file", str(file), "--quiet"),
        *("--no-header", "--no-annotate", "--no-emit-index-url"),
    ]
    subprocess.run([*command, *arguments], cwd=ROOT, check=True)
    pins = file.read_text(encoding="utf-8")
    file.write_text(f"# Written by `make locks`: {what}.\n{pins}", encoding="utf-8")
    print(f"{file.relative_to(ROOT)}: {len(pins.splitlines())} lines")


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
