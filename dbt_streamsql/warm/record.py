"""What the warm engine of a warehouse says about itself, in a folder that only its user can open.

<cache>/servers/<key of the warehouse>/   mode 0700
    server.json   its address and the token that it requires; exists while it serves, mode 0600
    state.json    sessions and memory, updated continuously
    server.log    Spark's output
    lock          held while an engine is being started
    alive         held while an engine runs
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
from dbt_streamsql.runtime.spark.settings import SessionSettings, catalog_file
from dbt_streamsql.warm import process


@dataclass(frozen=True)
class Record:
    """One warm engine. `process` is its identity, `since` in seconds since 1970.

    `fingerprint` identifies the settings it was started with, `versions` the programs, and
    `catalog` the file ('' when the catalog is elsewhere).
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
    """What a running engine is doing: sessions, running statements, bytes of Java's heap.

    `idle` is the seconds since its last request.
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
        """Make the folder. Error: SERVER when other users could look into it."""
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
            # Written by a version with different fields.
            return None

    def state(self) -> State | None:
        body = self._load("state.json")
        return State(**body) if body and set(body) == {f.name for f in fields(State)} else None

    def publish(self, record: Record) -> None:
        self._store("server.json", asdict(record))

    def tell(self, state: State) -> None:
        self._store("state.json", asdict(state))

    def withdraw(self) -> None:
        """Accept no new clients."""
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
        # `mkstemp` creates files of mode 0600, and the rename is atomic.
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
        "native": settings.native,
        "iceberg": settings.iceberg,
    }
    return sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def catalog_identity(settings: SessionSettings) -> str:
    """The identity of the catalog's file: it changes when the warehouse is recreated."""
    file = catalog_file(settings)
    if file is None:
        return ""
    try:
        found = file.stat()
    except FileNotFoundError:
        return "none"
    return f"{found.st_dev}:{found.st_ino}"


def versions() -> str:
    """The programs that client and engine must share: functions travel as bytecode."""
    python = f"Python {sys.version_info.major}.{sys.version_info.minor} in {sys.prefix}"
    return f"dbt-streamsql {version}, PySpark {metadata.version('pyspark')}, {python}"


def _private(path: Path) -> bool:
    """Whether it belongs to this user and no other user may read it."""
    found = path.lstat()
    kind = stat.S_ISDIR(found.st_mode) or stat.S_ISREG(found.st_mode)
    return kind and found.st_uid == os.getuid() and not found.st_mode & 0o077
