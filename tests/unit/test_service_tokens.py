"""The file of tokens: who may read it, what it may hold, and whose a token is."""

from __future__ import annotations

import hashlib
import json
import os
from typing import TYPE_CHECKING

import pytest
import yaml

from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.meta.client import local_tokens
from dbt_streamsql.meta.model import tokens
from dbt_streamsql.meta.model.tokens import Identity

if TYPE_CHECKING:
    from pathlib import Path

LONG = "a-token-that-is-long-enough-to-count"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "meta.db.token"


def write(file: Path, text: str) -> Path:
    file.touch(0o600)
    file.write_text(text)
    return file


def refused(file: Path) -> str:
    with pytest.raises(StreamSqlError) as caught:
        tokens.load(file)
    assert caught.value.code == "META_SERVICE"
    assert LONG not in str(caught.value)
    return caught.value.given


def test_a_new_token_has_256_bits_and_is_the_owners_alone(file: Path, tmp_path: Path) -> None:
    tokens.make(file)
    tokens.make(tmp_path / "other")
    token = file.read_text().strip()
    assert len(token) == 43
    assert token != (tmp_path / "other").read_text().strip()
    assert file.stat().st_mode & 0o777 == 0o600
    tokens.make(file)
    assert file.read_text().strip() == token, "it is made once"
    assert tokens.load(file).find(token) == Identity("default", "admin")


def test_a_folder_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(StreamSqlError, match="No such file"):
        tokens.make(tmp_path / "none" / "token")
    assert "cannot be read" in refused(tmp_path / "none" / "token")


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602, 0o666])
def test_a_file_that_others_may_open_is_not_used(file: Path, mode: int) -> None:
    write(file, LONG).chmod(mode)
    assert "others" in refused(file)
    assert tokens.single(file) == ""


def test_several_tokens_have_roles_and_schemas(file: Path) -> None:
    digest = hashlib.sha256(b"dashboard-" + LONG.encode()).hexdigest()
    listed = [
        {"name": "dashboard", "role": "read", "schemas": ["shop"], "sha256": digest},
        {"name": "nightly", "role": "run", "token": LONG},
    ]
    write(file, yaml.safe_dump({"tokens": listed}))
    for text in (file.read_text(), json.dumps({"tokens": listed})):
        known = tokens.load(write(file, text))
        assert known.find(LONG) == Identity("nightly", "run")
        found = known.find("dashboard-" + LONG)
        assert found == Identity("dashboard", "read", frozenset({"shop"}))
        for wrong in ("", LONG[:-1], LONG + "x", digest):
            assert known.find(wrong) is None
    assert tokens.single(file) == "", "a client does not choose among several"


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ("x", "a mapping"),
        ({"name": "a", "role": "read", "token": LONG, "more": 1}, "a mapping"),
        ({"role": "read", "token": LONG}, "`name`"),
        ({"name": "a b", "role": "read", "token": LONG}, "`name`"),
        ({"name": "a", "role": "king", "token": LONG}, "`role`"),
        ({"name": "a", "role": "read"}, "either"),
        ({"name": "a", "role": "read", "token": LONG, "sha256": "0" * 64}, "either"),
        ({"name": "a", "role": "read", "token": "short"}, "at least 32"),
        ({"name": "a", "role": "read", "token": 7}, "at least 32"),
        ({"name": "a", "role": "read", "sha256": "0" * 63}, "64 hexadecimal"),
        ({"name": "a", "role": "read", "token": LONG, "schemas": "shop"}, "list of names"),
        (
            {"name": "a", "role": "admin", "token": LONG, "schemas": ["shop"]},
            "an admin cannot have `schemas`",
        ),
    ],
)
def test_an_entry_that_cannot_be_meant_is_refused(file: Path, entry: object, problem: str) -> None:
    good = {"name": "good", "role": "run", "token": "good-" + LONG}
    text = refused(write(file, yaml.safe_dump({"tokens": [good, entry]})))
    assert "entry 2: " in text
    assert problem in text


def test_all_that_is_wrong_with_the_entries_is_reported_at_once(file: Path) -> None:
    listed = [
        {"name": "a b", "role": "king", "token": LONG},
        {"name": "good", "role": "run", "token": "good-" + LONG},
        {"name": "c", "role": "read", "sha256": "0"},
    ]
    given = refused(write(file, yaml.safe_dump({"tokens": listed})))
    assert given.count("entry 1: ") == 2
    assert "entry 2: " not in given
    assert "entry 3: `sha256`" in given


@pytest.mark.parametrize(
    "text", ["", "short", f"{LONG}\n{LONG}", "tokens: []", "tokens: {a: b}", "- a", "a: [", "\x00"]
)
def test_a_file_without_tokens_is_refused(file: Path, text: str) -> None:
    assert "neither one token nor a list" in refused(write(file, text))


def test_names_and_tokens_are_not_given_twice(file: Path) -> None:
    one = {"name": "a", "role": "run", "token": LONG}
    for what, other in (("name", {**one, "token": "x" + LONG}), ("token", {**one, "name": "b"})):
        write(file, yaml.safe_dump({"tokens": [one, other]}))
        assert f"the same {what}" in refused(file)


@pytest.mark.parametrize(
    ("table", "schema"),
    [
        ("lake.shop.totals", "shop"),
        ("shop.totals", ""),
        ("totals", ""),
        ("a.b.c.d", ""),
        ("`lake.shop`.x.t", ""),
    ],
)
def test_a_limited_token_covers_plain_three_part_names(table: str, schema: str) -> None:
    assert tokens.schema_of(table) == schema
    limited = Identity("a", "run", frozenset({"shop"}))
    assert limited.changes(table) is (schema == "shop")
    assert Identity("a", "run").changes(table)


def test_a_client_finds_the_token_of_a_living_service_of_its_user(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STREAMSQL_CACHE", str(tmp_path / "cache"))
    write(file, LONG + "\n")
    assert local_tokens.find(8123) == ""
    local_tokens.publish(8123, file)
    place = tmp_path / "cache" / "meta" / "8123.json"
    assert place.stat().st_mode & 0o777 == 0o600
    assert place.parent.stat().st_mode & 0o777 == 0o700
    assert LONG not in place.read_text()
    assert local_tokens.find(8123) == LONG
    assert local_tokens.find(8124) == ""
    place.chmod(0o644)
    assert local_tokens.find(8123) == "", "others could have written it"
    place.chmod(0o600)
    ended = os.fork()
    if not ended:
        os._exit(0)
    os.waitpid(ended, 0)
    place.write_text(json.dumps({"token_file": str(file), "pid": ended}))
    assert local_tokens.find(8123) == "", "somebody else may listen there now"
    local_tokens.withdraw(8123)
    local_tokens.withdraw(8123)
    assert not place.exists()
