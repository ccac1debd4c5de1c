"""Make the virtual environment `.venv` with the project and its tools in it, unless it is there.

Needs nothing but Python: `python3 scripts/bootstrap.py [PYTHON]`. With PYTHON another interpreter
makes the environment. It has the versions of scripts/locks/highest.txt. A change of that file or
of pyproject.toml installs again.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
SUPPORTED = ((3, 10), (3, 13))


def venv_python() -> Path:
    """The interpreter of the virtual environment."""
    if os.name == "nt":
        return VENV / "Scripts" / "python.exe"
    return VENV / "bin" / "python"


def ensure(python: str = sys.executable) -> Path:
    """Return the environment's interpreter; make and fill the environment first if need be."""
    stamp = VENV / ".installed"
    # The shim is copied by an editable install, everything else is read where it lies.
    lock = ROOT / "scripts" / "locks" / "highest.txt"
    parts = [
        ROOT / "pyproject.toml",
        lock,
        *sorted((ROOT / "dbt_streamsql" / "_dbt").glob("*.py")),
    ]
    state = hashlib.sha256(b"".join(part.read_bytes() for part in parts)).hexdigest()
    if stamp.is_file() and stamp.read_text() == state and venv_python().exists():
        return venv_python()
    _check_version(python)
    _say(f"making {VENV.name} and installing the project into it (some minutes, once)")
    # `--clear` also mends an environment whose making was interrupted.
    _run([python, "-m", "venv", "--clear", str(VENV)], "install the package python3-venv")
    pip = [str(venv_python()), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    _run([*pip, "-c", str(lock), "-e", f"{ROOT}[dev]"], "see pip's message above")
    stamp.write_text(state)
    return venv_python()


def _check_version(python: str) -> None:
    code = "import sys; print(*sys.version_info[:2])"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
    found = tuple(int(part) for part in done.stdout.split())
    if not SUPPORTED[0] <= found <= SUPPORTED[1]:
        wanted = " to ".join(".".join(map(str, version)) for version in SUPPORTED)
        given = ".".join(map(str, found)) or "nothing that runs"
        sys.exit(
            f"{python} is Python {given}; the project needs {wanted}."
            " Name another one: make PYTHON=python3.12 …"
        )


def _run(command: list[str], advice: str) -> None:
    if subprocess.run(command, check=False).returncode:
        sys.exit(f"this failed: {' '.join(command)}\n{advice}")


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


if __name__ == "__main__":
    ensure(*sys.argv[1:2])
