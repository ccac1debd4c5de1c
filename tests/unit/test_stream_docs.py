"""The pages on sources: their examples are declared rightly, and no option is left out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from dbt_streamsql.connectors.options import Options
from dbt_streamsql.connectors.sources.registry import module_of
from dbt_streamsql.errors import Place

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "sources-databases.md"
CONNECTION = {"user": "etl", "password": "a word"}


def declared():
    for text in re.findall(
        r"```yaml\n(sources:.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL
    ):
        for table in yaml.safe_load(text)["sources"][0]["tables"]:
            yield table["name"], table["config"]["meta"]["streamsql"]


def opened(spec, **more):
    options = Options({**spec, "options": {**CONNECTION, **spec["options"], **more}}, Place("m"))
    return module_of(spec["connector"]).source(options), options


@pytest.mark.parametrize(("name", "spec"), list(declared()))
def test_an_example_of_the_page_is_declared_rightly(name, spec):
    source, _ = opened(spec)
    assert name in source.name or "query" in spec["options"]
    assert "a word" not in repr(source)


@pytest.mark.parametrize("connector", ["jdbc", "postgres"])
def test_the_page_has_every_option(connector):
    page = PAGE.read_text(encoding="utf-8")
    section = page.split(f"\n## `{connector}`")[1].split("\n## ")[0]
    spec = next(spec for _, spec in declared() if spec["connector"] == connector)
    _, options = opened(spec)
    assert [key for key in options._known if f"`{key}`" not in section] == []
