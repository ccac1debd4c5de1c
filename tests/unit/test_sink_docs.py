"""The page on sinks: no option is left out, its example is declared rightly, no secret is told."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dbt_streamsql.connectors.options import HIDDEN
from dbt_streamsql.connectors.sinks.registry import TARGETS, SinkOptions, module_of, open_target
from dbt_streamsql.errors import Place, StreamSqlError
from dbt_streamsql.runtime.core.failpoints import SINK_STEPS

PAGE = (Path(__file__).parents[2] / "docs" / "sink.md").read_text(encoding="utf-8")
SECRET = "a word"  # noqa: S105 - no secret
POSTGRES = {"host": "db", "database": "shop", "user": "etl", "password": SECRET, "table": "t"}
URL = f"jdbc:postgresql://db/shop?user=etl&password={SECRET}"
GIVEN = {
    "files": ({"path": "out"}, "", ()),
    "jdbc": ({"url": URL, "table": "t"}, "", ("id",)),
    "kafka": ({"bootstrap_servers": "broker:9092", "topic": "t"}, "", ("id",)),
    "postgres": (POSTGRES, "", ("id",)),
}


def section(title):
    return re.split(r"\n## ", PAGE.partition(f"\n## `{title}`")[2])[0]


@pytest.mark.parametrize("connector", TARGETS)
def test_the_page_has_every_option_and_mode(connector):
    given, mode, key = GIVEN[connector]
    options = SinkOptions({"connector": connector, "options": given}, Place("m"))
    found = module_of(connector).target(options, mode, key)
    told = section("postgres" if connector == "jdbc" else connector)
    assert [each for each in options._known if f"`{each}`" not in told] == []
    assert SECRET not in repr(found) + found.name + found.identity


@pytest.mark.parametrize("connector", ["kafka", "postgres", "jdbc"])
def test_what_is_kept_by_key_needs_one(connector):
    given, mode, _ = GIVEN[connector]
    spec = {"connector": connector, "options": given}
    with pytest.raises(StreamSqlError) as caught:
        open_target(spec, mode, (), Place("m"))
    assert "`key`" in caught.value.given


def test_a_wrong_option_is_told_without_the_secret():
    spec = {"connector": "postgres", "options": {**POSTGRES, "port": "x", "pasword": SECRET}}
    with pytest.raises(StreamSqlError) as caught:
        open_target(spec, "changelog", ("id",), Place("m"))
    assert all(word in caught.value.given for word in ("`port`", "`pasword`", "`mode`"))
    assert SECRET not in str(caught.value)
    assert HIDDEN not in caught.value.given


def test_every_step_of_a_delivery_has_its_name():
    assert list(SINK_STEPS)[-2:] == ["sink.publish", "sink.delivered"]
