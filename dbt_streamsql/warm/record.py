"""What the warm engine of a warehouse says about itself, in a folder that only its user can open.

<cache>/servers/<key of the warehouse>/   mode 0700
    server.json   where it is and the token that it asks for; there while it serves, mode 0600
    state.json    sessions and memory, renewed all the time
    server.log    what Spark said
    lock          held while somebody starts one
    alive         held while one runs
"""

from __future__ import annotations

import json
import os
import stat
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from hashlib import sha256
from importlib import metadata
from pathlib import Path
from typing import Any

from dbt_streamsql.__version__ import version
from dbt_streamsql.cache import cache_folder
from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.runtime.spark.jars import EMBEDDED
from dbt_streamsql.runtime.spark.session import SessionSettings, catalog_file
from dbt_streamsql.warm import process


@dataclass(frozen=True)
class Record:
    """One warm engine. `process` is its identity, `since` seconds of the epoch.

    `fingerprint` tells with which settings it was started, `versions` with which programs, and
    `catalog` on which file ('' when the catalog is elsewhere).
    """

    process: str
    port: int
    warehouse: str
    fingerprint: str
    versions: str
    catalog: str
    since: float
    token: str = field(repr=False)

    @property
    def pid(self) -> int:
        return int(self.process.partition("-")[0])

    @property
    def alive(self) -> bool:
        return process.runs(self.process)


@dataclass(frozen=True)
class State:
    """What a running one is doing: sessions, statements under way, bytes of Java's heap.

    `idle` is for how many seconds nobody has asked it anything.
    """

    sessions: int
    statements: int
    memory_used: int
    memory_limit: int
    idle: float


class Place:
    """The folder of one warehouse's engine."""

    def __init__(self, settings: SessionSettings) -> None:
        key = sha256(f"{settings.catalog}\n{settings.warehouse}".encode()).hexdigest()[:16]
        self.folder = cache_folder() / "servers" / key

    def make(self) -> None:
        """Make the folder. Error: SERVER, when somebody else could look into it."""
        for folder in (self.folder.parent, self.folder):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not _private(folder):
                raise StreamSqlError(
                    "SERVER",
                    "the folder of the warm engine is not private",
                    given=str(folder),
                    allowed="a folder that you own, with mode 0700",
                    hint=f"`chmod 700 {folder}`, or set STREAMSQL_CACHE to a folder that you own",
                )

    @property
    def log(self) -> Path:
        return self.folder / "server.log"

    def read(self) -> Record | None:
        """The record, or None when there is none that can be trusted."""
        body = self._load("server.json")
        try:
            return Record(**body) if body else None
        except TypeError:
            # Written by a version with other fields.
            return None

    def state(self) -> State | None:
        body = self._load("state.json")
        return State(**body) if body and set(body) == {f.name for f in fields(State)} else None

    def publish(self, record: Record) -> None:
        self._store("server.json", asdict(record))

    def tell(self, state: State) -> None:
        self._store("state.json", asdict(state))

    def withdraw(self) -> None:
        """Nobody new is to come."""
        for name in ("server.json", "state.json"):
            (self.folder / name).unlink(missing_ok=True)

    def _load(self, name: str) -> dict[str, Any] | None:
        file = self.folder / name
        try:
            if not (_private(self.folder) and _private(file)):
                return None
            body = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return body if isinstance(body, dict) else None

    def _store(self, name: str, body: Mapping[str, Any]) -> None:
        # `mkstemp` makes files of mode 0600, and the rename shows all of one or nothing.
        descriptor, temporary = tempfile.mkstemp(prefix=f".{name}.", dir=self.folder)
        with os.fdopen(descriptor, "w", encoding="utf-8") as out:
            json.dump(body, out)
        Path(temporary).replace(self.folder / name)


def fingerprint(settings: SessionSettings) -> str:
    """Equal when an engine that was started with other settings behaves the same."""
    parts = {
        "catalog": settings.catalog,
        "warehouse": settings.warehouse,
        "catalog_properties": dict(settings.catalog_properties),
        "spark_properties": dict(settings.spark_properties),
        "connectors": sorted(set(settings.connectors)),
    }
    return sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def catalog_identity(settings: SessionSettings) -> str:
    """Of the catalog's file: another after the warehouse was removed and made anew."""
    file = catalog_file(settings)
    if file is None:
        return ""
    try:
        found = file.stat()
    except FileNotFoundError:
        return "none"
    return f"{found.st_dev}:{found.st_ino}"


def versions() -> str:
    """The programs that client and engine must have in common: functions travel as bytecode."""
    python = f"Python {sys.version_info.major}.{sys.version_info.minor} in {sys.prefix}"
    jars = ", ".join(jar.file_name.removesuffix(".jar") for jar in EMBEDDED)
    return f"dbt-streamsql {version}, PySpark {metadata.version('pyspark')}, {python}, {jars}"


def _private(path: Path) -> bool:
    """Whether it is this user's and nobody else may read it."""
    found = path.lstat()
    kind = stat.S_ISDIR(found.st_mode) or stat.S_ISREG(found.st_mode)
    return kind and found.st_uid == os.getuid() and not found.st_mode & 0o077
