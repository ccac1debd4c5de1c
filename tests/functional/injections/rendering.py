"""Statements as dbt renders them: the real manifest, the real context and our macros."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dbt.adapters.factory import get_adapter_by_type
from dbt.cli.main import dbtRunner
from dbt.context.providers import generate_runtime_model_context

from dbt_streamsql.adapter.config.plain_table import spec_of
from dbt_streamsql.quoting import TableName
from dbt_streamsql.storage.locations import Roots

_MODEL = "{{ config(materialized='table') }} select 1 as id, 2 as other"
_YAML = """
models:
  - name: m
    description: benign
    columns: [{name: id, data_type: int, description: benign}, {name: other, data_type: int}]
"""


class Renderer:
    """One model of one project, whose config is replaced for each statement."""

    def __init__(self, project: Any) -> None:
        project.write("models/m.sql", _MODEL)
        project.write("models/m.yml", _YAML)
        folders = ["--project-dir", str(project.root), "--profiles-dir", str(project.root)]
        parsed = dbtRunner().invoke(["--quiet", "parse", *folders])
        assert parsed.success, parsed.exception
        self.adapter = get_adapter_by_type("streamsql")
        self.node = parsed.result.nodes["model.shop.m"]
        self.context = generate_runtime_model_context(
            self.node, self.adapter.config, parsed.result
        )

    def macro(self, name: str, *arguments: Any, **config: Any) -> str:
        """What a macro prints for this model with this config."""
        with self._configured(config):
            return str(self.context[name](*arguments))

    def create_table(self, **config: Any) -> str:
        return self.macro("create_table_as", False, self.relation(), "select 1 as id", **config)

    def spec(self, **config: Any) -> str:
        """The statement that builds a table."""
        name = TableName("lake", "shop", "m")
        # Every absolute place is allowed: what a place is, is tested elsewhere.
        roots = Roots(Path("/"), ("/",))
        found = spec_of(name, {"alias": "m", **self.context["model"]}, config, roots)
        return found.create_as("CREATE TABLE", name, "SELECT 1 AS id", found.location, {})

    def relation(self, **parts: str) -> Any:
        names = {"database": "lake", "schema": "shop", "identifier": "m", **parts}
        return self.adapter.Relation.create(type="table", **names)

    @contextmanager
    def described(self, text: str):
        """The model and its column `id` have this description."""
        model, columns = self.context["model"], self.context["model"]["columns"]
        before = model["description"], columns["id"]["description"]
        model["description"] = columns["id"]["description"] = text
        try:
            yield
        finally:
            model["description"], columns["id"]["description"] = before

    @contextmanager
    def _configured(self, config: dict[str, Any]):
        kept = self.node.config
        self.node.config = kept.replace()
        for key, value in config.items():
            self.node.config[key] = value
        try:
            yield
        finally:
            self.node.config = kept
