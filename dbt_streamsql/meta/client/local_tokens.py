"""Where the services of this host keep their tokens, for clients of the same user.

While it runs, a service writes the location of its token file to the user's cache folder:

<cache>/meta/           mode 0700
    <port>.json         the file, and the process; mode 0600
"""

from __future__ import annotations

import ipaddress
import json
import os
import stat
import tempfile
from pathlib import Path

from dbt_streamsql.cache import cache_folder
from dbt_streamsql.meta.model import tokens


def is_loopback(host: str) -> bool:
    """Whether data sent to this address or name stays on this host."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def publish(port: int, token_file: Path) -> None:
    """Publish the location of the token of the service on `port`."""
    place = _place(port)
    place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    place.parent.chmod(0o700)
    body = json.dumps({"token_file": str(token_file.absolute()), "pid": os.getpid()})
    # `mkstemp` makes files of mode 0600, and the rename is atomic.
    descriptor, temporary = tempfile.mkstemp(prefix=f".{port}.", dir=place.parent)
    with os.fdopen(descriptor, "w", encoding="utf-8") as out:
        out.write(body)
    Path(temporary).replace(place)


def withdraw(port: int) -> None:
    _place(port).unlink(missing_ok=True)


def find(port: int) -> str:
    """The token of the service on `port` of this host; '' when this user runs none there."""
    place = _place(port)
    try:
        found = place.lstat()
        private = stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid()
        if not private or found.st_mode & 0o077:
            return ""
        body = json.loads(place.read_text(encoding="utf-8"))
        # A process that took over the port of a dead service must not get the token.
        os.kill(body["pid"], 0)
        return tokens.single(Path(body["token_file"]))
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def _place(port: int) -> Path:
    return cache_folder() / "meta" / f"{port}.json"
