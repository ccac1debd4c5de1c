"""Which places files may have."""

from __future__ import annotations

import os

import pytest

from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.storage.locations import Roots
from tests.functional.injections import payloads


@pytest.fixture
def roots(tmp_path):
    """A warehouse, a folder and a bucket are allowed; links and folders beside them are there."""
    for name in ("warehouse", "data", "secret", "warehouse2"):
        (tmp_path / name).mkdir()
    (tmp_path / "warehouse" / "in").symlink_to(tmp_path / "data")
    (tmp_path / "warehouse" / "out").symlink_to(tmp_path / "secret")
    (tmp_path / "warehouse" / "loop").symlink_to(tmp_path / "warehouse" / "loop")
    places = (str(tmp_path / "warehouse"), str(tmp_path / "data"), "s3://bucket/tables")
    return Roots(tmp_path, places)


@pytest.mark.parametrize(
    ("given", "place"),
    [
        ("warehouse/a", "{}/warehouse/a"),
        ("./warehouse/../data/b", "{}/data/b"),
        ("{}/data", "{}/data"),
        ("file:{}/data/x", "{}/data/x"),
        ("file://{}/data/x", "{}/data/x"),
        ("warehouse/in/a", "{}/data/a"),
        ("warehouse/a b'c`d", "{}/warehouse/a b'c`d"),
        ("warehouse/%2e%2e", "{}/warehouse/%2e%2e"),
        ("s3://bucket/tables/a", "s3://bucket/tables/a"),
        ("S3://bucket//tables/a/", "s3://bucket/tables/a"),
    ],
)
def test_a_place_below_a_root_is_made_absolute(roots, tmp_path, given, place):
    assert roots.locate(given.format(tmp_path), "x") == place.format(tmp_path)


@pytest.mark.parametrize(
    "given",
    [
        "secret",
        "warehouse/../secret",
        "warehouse/out",
        "warehouse/out/deep",
        "warehouse/in/../secret",
        "warehouse2/a",
        "{}/warehouse2",
        "file:{}/secret",
        "file://host{}/warehouse",
        "FILE:{}/secret",
        "s3://bucket/tables2",
        "s3://bucket/tables/../x",
        "s3://bucket/tables/%2E%2E/x",
        "s3://other/tables",
        "s3a://bucket/tables",
        "s3://bucket@evil/tables",
        "s3:bucket/tables",
        "hdfs://bucket/tables",
        None,
        7,
        *payloads.PATHS,
    ],
    ids=repr,
)
def test_every_other_place_is_refused(roots, tmp_path, given):
    given = given.format(tmp_path) if isinstance(given, str) and "{}" in given else given
    with pytest.raises(StreamSqlError) as refused:
        roots.locate(given, "location_root")
    assert refused.value.code == "PATH_OUTSIDE"
    assert refused.value.given
    assert refused.value.hint


def test_no_string_leads_out_of_a_folder(roots, tmp_path):
    """What is accepted lies below a root when the operating system looks at it."""
    for text in payloads.ALL:
        try:
            place = roots.locate(f"warehouse/{text}", "x")
        except StreamSqlError:
            continue
        real = os.path.realpath(place)
        assert real == place
        assert real.startswith((f"{tmp_path}/warehouse", f"{tmp_path}/data")), text


def test_without_a_root_nothing_is_allowed(tmp_path):
    with pytest.raises(StreamSqlError, match="the profile names no folder"):
        Roots(tmp_path, ()).locate("a", "location_root")
