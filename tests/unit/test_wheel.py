"""What is in the wheel: the pages work where only the wheel was installed."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
STATIC = ROOT / "dbt_streamsql" / "web" / "static"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return zipfile.ZipFile(next(folder.glob("*.whl")))


def test_every_file_of_the_pages_is_in_the_wheel(wheel: zipfile.ZipFile) -> None:
    names = set(wheel.namelist())
    files = [f.relative_to(ROOT).as_posix() for f in STATIC.rglob("*") if f.is_file()]
    assert len(files) > 10
    assert set(files) <= names


def test_the_shim_and_the_macros_are_in_the_wheel(wheel: zipfile.ZipFile) -> None:
    names = set(wheel.namelist())
    assert "dbt/adapters/streamsql/__init__.py" in names
    assert any(name.startswith("dbt_streamsql/macros/") for name in names)
    assert not any(name.startswith(("tests/", "docs/")) for name in names)


def test_a_library_of_others_comes_with_its_licence(wheel: zipfile.ZipFile) -> None:
    vendor = [name for name in wheel.namelist() if "/vendor/" in name and name.endswith(".js")]
    assert vendor
    for name in vendor:
        licence = wheel.read(f"{name.removesuffix('.js')}.LICENSE.txt").decode()
        assert "Permission is hereby granted" in licence


def test_the_pages_name_no_other_host(wheel: zipfile.ZipFile) -> None:
    namespaces = ("http://www.w3.org/2000/svg",)
    for name in wheel.namelist():
        if name.startswith("dbt_streamsql/web/static/") and not name.endswith(".txt"):
            found = re.findall(r"""["'(](?:https?:)?//[^"')]+""", wheel.read(name).decode())
            assert [url for url in found if url[1:] not in namespaces] == [], name
