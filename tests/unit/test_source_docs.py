"""The page on sources: no option of Kafka and of files is left out, and its examples are right."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from dbt_streamsql.connectors.options import Options
from dbt_streamsql.connectors.sources.files import file_source
from dbt_streamsql.connectors.sources.kafka import kafka_source
from dbt_streamsql.connectors.sources.registry import module_of
from dbt_streamsql.errors import Place

PAGE = (Path(__file__).parents[2] / "docs" / "sources.md").read_text(encoding="utf-8")
SCHEMA = '{"type": "record", "name": "r", "fields": [{"name": "id", "type": "int"}]}'
GIVEN = {
    "kafka": {"bootstrap_servers": "broker:9092", "topic": "clicks"},
    "files": {"path": "in"},
}


def section(title):
    return re.split(r"\n## ", PAGE.partition(f"\n## {title}")[2])[0]


def opened(connector, fmt, columns=(("id", "int"),), **given):
    options = Options(
        {"connector": connector, "format": fmt, "columns": columns, "options": given}, Place("m")
    )
    return module_of(connector).source(options), options


@pytest.mark.parametrize(
    ("connector", "fmt"),
    [("kafka", fmt) for fmt in kafka_source.FORMATS]
    + [("files", fmt) for fmt in file_source.FORMATS],
)
def test_the_page_has_every_option(connector, fmt, tmp_path):
    given = dict(GIVEN[connector])
    if fmt == "avro":
        given["schema_file"] = str(tmp_path / "r.avsc")
        (tmp_path / "r.avsc").write_text(SCHEMA)
    _, options = opened(connector, fmt, **given)
    told = section(f"`{connector}`") + section("Formats")
    assert [key for key in options._known if f"`{key}`" not in told] == []
    assert f"`{fmt}`" in section(f"`{connector}`")
    assert re.search(rf"^\| [^|]*`{fmt}`", section("Formats"), re.MULTILINE)


def declared():
    for text in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL):
        found = yaml.safe_load(text)
        tables = found.get("tables", []) + [
            table for source in found.get("sources", []) for table in source["tables"]
        ]
        for table in tables:
            spec = table["config"]["meta"]["streamsql"]
            if spec["connector"] in GIVEN:
                columns = [(c["name"], c["data_type"]) for c in table.get("columns", [])]
                yield spec, columns


def test_the_examples_are_declared_rightly():
    examples = list(declared())
    assert {spec["connector"] for spec, _ in examples} == set(GIVEN)
    for spec, columns in examples:
        given = {"bootstrap_servers": "x:1"} if "connection" in spec else {}
        typed = columns or [part.split() for part in spec["schema"].split(",")]
        source, _ = opened(spec["connector"], spec["format"], typed, **given, **spec["options"])
        assert source.name
