"""The address of a store, and of a boundary's store next to it.

A boundary is a part of a topology with its own barriers and runner, in its own store. A table of
another boundary is an outside table: read as published when a run begins.
"""

from __future__ import annotations

import re
from pathlib import Path

from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

from dbt_streamsql.errors import StreamSqlError

STORE_FILE = "streamsql.db"
_SQLITE = "sqlite:///"
_NAME = re.compile(r"[a-z][a-z0-9_]{0,30}")
_SEARCHED = re.compile(r"-csearch_path=(\w+)")


def in_file(file: Path) -> str:
    """The address of a store in a SQLite file."""
    return f"{_SQLITE}{file}"


def file_of(url: str) -> Path | None:
    """The SQLite file of a store; None for other stores."""
    return Path(url.removeprefix(_SQLITE)) if url.startswith(_SQLITE) else None


def store_of(url: str, boundary: str) -> str:
    """The address of a boundary's store, next to the one at `url`; for no boundary (''), `url`.

    Its own SQLite file in the same folder, or its own schema in the same PostgreSQL
    database. Error: CONFIG_INVALID.
    """
    if not boundary:
        return url
    if not _NAME.fullmatch(boundary):
        raise StreamSqlError(
            "CONFIG_INVALID",
            "invalid boundary name",
            given=repr(boundary),
            allowed="up to 31 characters of a-z, 0-9 and _, starting with a letter",
        )
    if url.startswith(("http://", "https://")):
        raise StreamSqlError(
            "CONFIG_INVALID",
            "a MetaService serves the store of only one boundary",
            given=f"boundary {boundary}, with the address of a MetaService",
            hint="serve that boundary (`streamsql meta serve` with its profile), "
            "and set `meta` to its address without `boundary`",
        )
    try:
        parsed = make_url(url)
    except ArgumentError:
        return url  # refused where it is opened
    if parsed.get_backend_name() == "sqlite":
        stem, dot, ending = str(parsed.database).rpartition(".")
        named = f"{stem}-{boundary}.{ending}" if dot else f"{ending}-{boundary}"
        parsed = parsed.set(database=named)
    else:
        path = f"-csearch_path=streamsql_{boundary}"
        parsed = parsed.update_query_dict({"options": path})
    return parsed.render_as_string(hide_password=False)


def boundaries_beside(url: str) -> dict[str, str]:
    """The stores of all boundaries in the folder of a SQLite store, by name ('': of no boundary);
    elsewhere only the store itself is known."""
    file = file_of(url)
    if file is None:
        return {}
    stem = STORE_FILE.rpartition(".")[0]
    found = {"": file.with_name(STORE_FILE)}
    for each in sorted(file.parent.glob(f"{stem}-*.db")):
        found[each.stem.removeprefix(f"{stem}-")] = each
    return {name: in_file(each) for name, each in found.items() if each.is_file()}


def schema_of(url: str) -> str:
    """The PostgreSQL schema that such a URL names ('': the server's own choice)."""
    found = _SEARCHED.search(str(make_url(url).query.get("options", "")))
    return found[1] if found else ""
