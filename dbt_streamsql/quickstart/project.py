"""The project of the quickstart, written into a folder of the user."""

from __future__ import annotations

import shutil
from pathlib import Path

from dbt_streamsql.errors import StreamSqlError

TEMPLATE = Path(__file__).parent / "shop"
_PROJECT = "dbt_project.yml"
_MARK = "# A project of `streamsql quickstart`."


def write_project(folder: Path) -> int:
    """The number of files that were written: 0 when the project is there, edited or not.

    Errors: CONFIG_INVALID when the folder holds something else, FILE_UNREADABLE.
    """
    project = folder / _PROJECT
    if project.is_file() and _MARK in project.read_text():
        return 0
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise StreamSqlError(
            "CONFIG_INVALID",
            "the folder is not empty, and has no project of the quickstart",
            given=str(folder),
            hint="name a new folder: `streamsql quickstart my-shop`",
        )
    try:
        shutil.copytree(TEMPLATE, folder, dirs_exist_ok=True)
    except OSError as error:
        raise StreamSqlError(
            "FILE_UNREADABLE", "the project cannot be written", given=str(error)
        ) from error
    return sum(1 for file in folder.rglob("*") if file.is_file())
