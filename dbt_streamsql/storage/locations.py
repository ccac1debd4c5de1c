"""Where files may be: under the folders and URIs that the profile allows, and nowhere else."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from dbt_streamsql.errors import StreamSqlError

PATH_PROPERTIES = frozenset(
    {
        "location",
        "path",
        "write.data.path",
        "write.folder-storage.path",
        "write.metadata.path",
        "write.object-storage.path",
    }
)
"""Keys of table properties and options (lower case) whose values are file locations."""

PLACING_PROPERTIES = frozenset({"write.location-provider.impl"})
"""Keys that let other code choose the locations."""

# As Hadoop reads it: the part before a colon in the first path component is a scheme.
_SCHEME = re.compile(r"([^/]*?):(.*)", re.DOTALL)
_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/?#]+)(/[^?#]*|)")
_CONTROL = re.compile(r"[\x00-\x1f\x7f\u2028\u2029]")


def is_uri(place: str) -> bool:
    """Whether a place is a URI, and not a folder of this machine."""
    return "://" in place


def under(root: Path, place: str) -> str:
    """A folder resolved against another one; a URI, and '', unchanged."""
    if not place or is_uri(place):
        return place
    return str((root / Path(place).expanduser()).resolve())


def local_path(location: str) -> Path | None:
    """The path of a table's location, or of one of its files; None when it is not on this
    machine."""
    path = location.removeprefix("file:")
    return Path("/" + path.lstrip("/")) if path.startswith("/") else None


@dataclass(frozen=True)
class Roots:
    """The allowed `places`, folders or URIs; relative paths begin at `base`.

    Links are followed when a path is checked. A user who can create links inside an allowed folder
    afterwards can redirect a writer; preventing that is up to the file system's permissions.
    """

    base: Path
    places: tuple[str, ...]

    def locate(self, given: object, what: str) -> str:
        """`given` as an absolute path without links, or as a URI. `what` names it in errors.

        Error: PATH_OUTSIDE.
        """
        place = self._read(given, what)
        if not any(_contains(self._read(root, "allowed_roots"), place) for root in self.places):
            raise StreamSqlError(
                "PATH_OUTSIDE",
                f"`{what}` is outside the allowed folders",
                given=f"{given!r}, which is {place}",
                allowed=" or below ".join(self.places) or "nothing: the profile names no folder",
                hint="choose a folder below these, or add one to `allowed_roots` in the profile",
            )
        return place

    def _read(self, given: object, what: str) -> str:
        if not isinstance(given, str) or not given.strip() or _CONTROL.search(given):
            raise _unreadable(given, what)
        scheme = _SCHEME.fullmatch(given)
        if scheme is None:
            return self._local(given, what)
        if scheme[1].lower() != "file":
            return _uri(given, what)
        path = re.fullmatch(r"(?://(?=/))?(/(?!/).*)", scheme[2], re.DOTALL)
        if path is None:
            raise _unreadable(given, what)
        return self._local(path[1], what)

    def _local(self, path: str, what: str) -> str:
        try:
            # `realpath` follows links before it goes up, as the operating system does.
            real = os.path.realpath(os.path.join(self.base, path))  # noqa: PTH118 - keeps `..`
            os.fsencode(real)
        except ValueError as error:
            raise _unreadable(path, what) from error
        return "/" + real.lstrip("/") if real.startswith("/") else Path(real).as_posix()


def _uri(given: str, what: str) -> str:
    parts = _URI.fullmatch(given)
    if parts is None or any(unquote(part) in (".", "..") for part in parts[3].split("/")):
        raise _unreadable(given, what)
    steps = [step for step in parts[3].split("/") if step]
    return "/".join([f"{parts[1].lower()}://{parts[2]}", *steps])


def _contains(root: str, place: str) -> bool:
    return place == root or place.startswith(root.rstrip("/") + "/")


def _unreadable(given: object, what: str) -> StreamSqlError:
    return StreamSqlError(
        "PATH_OUTSIDE",
        f"`{what}` is not a path that can be checked",
        given=repr(given),
        allowed="a path, a file: URI without a host, or scheme://name/path, without `.` and `..` "
        "in a URI and without control characters",
        hint="write a plain absolute path, or one relative to the dbt project",
    )
