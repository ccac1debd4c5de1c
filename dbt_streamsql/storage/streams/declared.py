"""The connectors, and how a declaration of a source becomes one that can be read."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from dbt_streamsql.errors import Place, StreamSqlError
from dbt_streamsql.storage.streams.options import Options
from dbt_streamsql.storage.streams.source import Source

CONNECTORS: Mapping[str, str] = {
    "datagen": "datagen",
    "files": "files",
    "jdbc": "jdbc",
    "kafka": "kafka",
    "postgres": "postgres",
    "rate": "datagen",
    "table": "tables",
}
"""Their names, and the module of each that has `source(options) -> Source`."""

PYTHON = "python"
"""The connector of python models, which no source declares."""


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
    module = import_module(f"{__package__}.{CONNECTORS.get(connector, connector)}")
    source: Source = module.source(Options({**spec, "reader": reader}, place))
    return source
