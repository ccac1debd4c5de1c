"""Play a newcomer: an empty home, the built wheel, the commands of the README and of other pages.

    python scripts/newcomer.py                  # packages from PyPI, jars from Maven Central
    python scripts/newcomer.py --rounds 3 --page README.md
    python scripts/newcomer.py --packages .venv --jars ~/.cache/dbt-streamsql/jars
    python scripts/newcomer.py --page docs/kafka.md --programs stubs --replace 9092=40123

`--programs` is a folder of programs that come before others of their names, and `--replace`
changes a text of the page: by these a test has a broker without a container.

Runs the console blocks of a page from top to bottom, in one shell, and compares what they print
with what the page shows: word for word, but numbers, sign-in codes and the width of tables may
differ. `...` on a line of its own stands for any lines. Prints the seconds after which each
command had ended, and the steps of the quickstart. Exit code 1 when something differs.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGES = ("README.md", "docs/quickstart.md", "docs/ci.md")
"""Those that need nothing but Python."""

WITH_DOCKER = ("docs/kafka.md",)
_SECTION = re.compile(r"^## Start$(.*?)^## ", re.DOTALL | re.MULTILINE)
"""The part of the README that is to be followed; other pages are followed whole."""
_BLOCK = re.compile(r"^```console$\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_END = "newcomer-has-done"
_KEPT = (
    "LANG",
    "LC_ALL",
    "SSL_CERT_FILE",
    "PIP_INDEX_URL",
    "PIP_CONSTRAINT",
    "STREAMSQL_MAVEN_REPOSITORY",
)
"""Variables of how this machine reaches others."""

_PLACES = ("/usr/local/bin", "/usr/bin", "/bin")


@dataclass(frozen=True)
class Command:
    """One command of a page, and the lines that the page shows below it (none: not compared)."""

    text: str
    shown: tuple[str, ...]


def main() -> int:
    given = _arguments()
    wheel = _wheel(given.folder)
    differing = 0
    for page in given.page or PAGES:
        for number in range(given.rounds):
            folder = given.folder / f"{Path(page).stem}-{number}"
            newcomer = _Newcomer(folder, wheel, given.packages, given.jars, given.programs)
            differing += newcomer.follow(page, [each.split("=", 1) for each in given.replace])
    return 1 if differing else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "--page", action="append", choices=PAGES + WITH_DOCKER, help=f"default: {', '.join(PAGES)}"
    )
    parser.add_argument("--rounds", type=int, default=1, help="so often, each in a new home")
    parser.add_argument("--packages", type=Path, help="virtual environment to take packages from")
    parser.add_argument("--jars", type=Path, help="folder with jars, instead of downloads")
    parser.add_argument("--programs", type=Path, help="folder of programs, first in the PATH")
    parser.add_argument(
        "--replace", action="append", default=[], help="a text of the page: OLD=NEW"
    )
    parser.add_argument("--folder", type=Path, help="default: a temporary one")
    given = parser.parse_args()
    given.folder = given.folder or Path(tempfile.mkdtemp(prefix="newcomer-"))
    return given


def _wheel(folder: Path) -> Path:
    """The wheel of this checkout."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return next(folder.glob("*.whl"))


def commands_of(page: str) -> Iterator[Command]:
    """The commands of a page: `$ ` begins one, `> ` goes on with it."""
    text = (ROOT / page).read_text()
    section = _SECTION.search(text)
    for block in _BLOCK.findall(section[1] if section else text):
        lines, shown = "", []
        for line in block.splitlines():
            if line.startswith("$ "):
                if lines:
                    yield Command(lines, tuple(shown))
                lines, shown = line[2:], []
            elif line.startswith("> "):
                lines += "\n" + line[2:]
            else:
                shown.append(line)
        yield Command(lines, tuple(shown))


class _Newcomer:
    """One shell in a home of its own, and the seconds of what it has done."""

    def __init__(
        self,
        folder: Path,
        wheel: Path,
        packages: Path | None,
        jars: Path | None,
        programs: Path | None,
    ) -> None:
        self._folder, self._wheel, self._packages = folder, wheel, packages
        self._programs = [str(programs.resolve())] if programs else []
        self._home, self._environment = folder / "home", folder / "environment"
        self._home.mkdir(parents=True)
        if jars is not None:
            cache = self._home / ".cache" / "dbt-streamsql"
            cache.mkdir(parents=True)
            (cache / "jars").symlink_to(jars.resolve())

    def follow(self, page: str, replaced: Sequence[Sequence[str]]) -> int:
        """The number of commands that failed or printed something else."""
        print(f"{page}, in {self._folder}", flush=True)
        began = time.monotonic()
        self._make_environment()
        shell = self._shell()
        differing = 0
        try:
            for command in commands_of(page):
                text = self._of_the_wheel(command.text)
                for old, new in replaced:
                    text = text.replace(old, new)
                code, printed = shell.run(text)
                same = code == 0 and _same(command.shown, printed)
                differing += not same
                took = f"{time.monotonic() - began:7.1f} s"
                print(f"{took} {'ok' if same else 'DIFFERS'} $ {command.text}", flush=True)
                if not same:
                    print(f"exit code {code}\n{printed}\nthe page shows:\n")
                    print(*command.shown, "", shell.errors(), sep="\n")
                elif text.startswith("streamsql quickstart") and "Barrier" in printed:
                    print(*re.findall(r"^ +[\d.]+ s .*$", printed, re.MULTILINE), sep="\n")
        finally:
            shell.run("streamsql quickstart --stop shop || streamsql quickstart --stop .")
            shell.close()
        return differing

    def _of_the_wheel(self, text: str) -> str:
        """The command, with the wheel for the name of its project."""
        text = text.replace('"dbt-streamsql[service]"', f'"{self._wheel}[service]"')
        if self._packages is not None:
            text = text.replace("pip install", "pip install --no-deps --no-index")
        return text

    def _make_environment(self) -> None:
        subprocess.run([sys.executable, "-m", "venv", str(self._environment)], check=True)
        if self._packages is not None:
            site = sysconfig.get_path("purelib", vars={"base": str(self._packages.resolve())})
            own = sysconfig.get_path("purelib", vars={"base": str(self._environment)})
            Path(own, "packages.pth").write_text(f"{site}\n")
            for program in Path(self._packages, "bin").glob("dbt"):
                # Its first line names the Python of the other environment.
                body = program.read_text().partition("\n")[2]
                mine = self._environment / "bin" / "dbt"
                mine.write_text(f"#!{self._environment}/bin/python\n{body}")
                mine.chmod(0o755)

    def _shell(self) -> _Shell:
        environment = {
            name: value
            for name, value in os.environ.items()
            if name in _KEPT or name.lower().endswith("_proxy")
        } | {
            "HOME": str(self._home),
            "PATH": ":".join([*self._programs, str(self._environment / "bin"), *_PLACES]),
            "DBT_SEND_ANONYMOUS_USAGE_STATS": "false",
        }
        return _Shell(self._home, environment)


class _Shell:
    """A bash that runs one command after the other."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self._errors = folder / "stderr.txt"
        self._process = subprocess.Popen(
            ["/bin/bash", "--noprofile", "--norc"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors.open("w"),
            text=True,
            cwd=folder,
            env=environment,
        )

    def run(self, text: str) -> tuple[int, str]:
        """The exit code, and what was printed as output."""
        into, out = self._process.stdin, self._process.stdout
        assert into is not None
        assert out is not None
        into.write(f"{text}\necho {_END} $?\n")
        into.flush()
        lines = []
        for line in out:
            if line.startswith(_END):
                return int(line.split()[1]), "".join(lines)
            lines.append(line)
        raise RuntimeError("the shell has ended")

    def errors(self) -> str:
        """What was printed as errors, and as progress."""
        return self._errors.read_text()

    def close(self) -> None:
        self._process.terminate()
        self._process.wait()


def _same(shown: tuple[str, ...], printed: str) -> bool:
    if not shown:
        return True
    parts = [re.escape(_plain(part)) for part in "\n".join(shown).split("\n...\n")]
    if shown[0] == "...":
        parts = ["", re.escape(_plain("\n".join(shown[1:])))]
    return re.fullmatch(r"(.*\n)?".join(parts), _plain(printed), re.DOTALL) is not None


def _plain(text: str) -> str:
    """Without what may differ: numbers, codes, times, colors, and the width of tables."""
    text = re.sub(r"\x1b\[[\d;]*m", "", text)
    text = re.sub(r"#code=\S+", "#code=…", text)
    text = re.sub(r"^\d\d:\d\d:\d\d +", "", text, flags=re.MULTILINE)
    text = re.sub(r"\d+(\.\d+)?", "0", text)
    text = re.sub(r"─+", "─", text)
    return "\n".join(" ".join(line.split()) for line in text.strip().splitlines())


if __name__ == "__main__":
    sys.exit(main())
