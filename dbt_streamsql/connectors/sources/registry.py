"""The connectors, and how a source's declaration becomes a source that can be read."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from types import ModuleType
from typing import Any

from dbt_streamsql.connectors.options import Options
from dbt_streamsql.connectors.sources.source import Source
from dbt_streamsql.errors import Place, StreamSqlError

CONNECTORS: Mapping[str, str] = {
    "datagen": "datagen",
    "files": "files.file_source",
    "jdbc": "jdbc_source",
    "kafka": "kafka.kafka_source",
    "postgres": "postgres.postgres_source",
    "rate": "datagen",
    "table": "table_source",
}
"""Their names and modules; each module has `source(options) -> Source`."""

PYTHON = "python"
"""The connector of Python models, which no source declares."""

_PYTHON_MODULE = "python_source"


def module_of(connector: str) -> ModuleType:
    """The module of a connector."""
    return import_module(f"{__package__}.{CONNECTORS.get(connector, _PYTHON_MODULE)}")


def open_source(spec: Mapping[str, Any], place: Place, reader: str = "") -> Source:
    """The stream that `spec` declares: `connector`, `format`, `columns` (name and type of each)
    and `options`. `reader` is the table that reads it.

    Error: CONFIG_INVALID, listing everything wrong.
    """
    connector = str(spec.get("connector") or "")
    if connector not in (*CONNECTORS, PYTHON):
        raise StreamSqlError(
            "CONFIG_INVALID",
            f"unknown connector {connector!r}" if connector else "the source has no `connector`",
            given=connector,
            allowed=", ".join(sorted(CONNECTORS)),
            hint="docs/sources.md has an example of each connector",
            place=place,
        )
    source: Source = module_of(connector).source(Options({**spec, "reader": reader}, place))
    return source
