"""The kinds of targets, and how a declaration becomes a target to deliver to."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from types import ModuleType
from typing import Any

from dbt_streamsql.connectors.options import Options
from dbt_streamsql.connectors.sinks.target import Target
from dbt_streamsql.errors import Place, StreamSqlError

TARGETS: Mapping[str, str] = {
    "files": "file_sink",
    "jdbc": "postgres_sink",
    "kafka": "kafka_sink",
    "postgres": "postgres_sink",
}
"""Their names and modules; each module has `target(options, mode, key) -> Target`."""


def module_of(connector: str) -> ModuleType:
    """The module of a kind of target."""
    return import_module(f"{__package__}.{TARGETS[connector]}")


def open_target(spec: Mapping[str, Any], mode: str, key: tuple[str, ...], place: Place) -> Target:
    """The target that `spec` declares: `connector`, `format` and `options`.

    Error: CONFIG_INVALID, listing everything wrong.
    """
    connector = str(spec.get("connector") or "")
    if connector not in TARGETS:
        raise StreamSqlError(
            "CONFIG_INVALID",
            f"unknown connector {connector!r}" if connector else "the target has no `connector`",
            given=connector,
            allowed=", ".join(sorted(TARGETS)),
            hint="docs/sink.md has an example of each connector",
            place=place,
        )
    target: Target = module_of(connector).target(SinkOptions(spec, place), mode, key)
    return target


class SinkOptions(Options):
    """The declaration of one target."""

    what = "the target"
    docs = "docs/sink.md"

    def modes(self, mode: str, modes: tuple[str, ...], key: tuple[str, ...]) -> str:
        """The mode, by default the first of `modes`; `upsert` and `debezium` need a key."""
        if mode and mode not in modes:
            self.wrong(f"`mode` is {mode!r}, not one of {', '.join(modes)}")
        found = mode if mode in modes else modes[0]
        if found in ("upsert", "debezium") and not key:
            self.wrong(f"`mode: {found}` needs a `key` in the model's config")
        return found
