"""How a streaming table's source is declared in a dbt project: a source with `meta.streamsql`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from dbt_streamsql.adapter.common.error_messages import listed
from dbt_streamsql.adapter.config import model_config
from dbt_streamsql.connectors.sources.registry import PYTHON
from dbt_streamsql.durations import event_times
from dbt_streamsql.errors import Place, StreamSqlError
from dbt_streamsql.quoting import TableName
from dbt_streamsql.storage.python_code import give

KEY = "streamsql"
"""The key under `meta` of a source that makes it a stream."""

_LISTS = ("key", "leave_out")
_TEXTS = ("sequence_by", "delete_when", "truncate_when", "on_error", "late_data")
"""Config keys of a streaming table that dbt does not know."""

_TIMES = ("lateness", "idle_after")
"""The same: durations."""

OWN_KEYS = (*_LISTS, *_TEXTS, *_TIMES)
"""All of them."""

_EVENT_TIME = "event_time"
"""Known to dbt; it stays dbt's own unless there is a `lateness`."""

_PATHS = ("path", "schema_file", "ledger")
"""Options that are file paths; `schema_files` has several."""

_DECLARED = ("connector", "format", "schema", "options", "connection")


def of_streaming_table(
    name: str, config: Mapping[str, Any], written: Mapping[str, Any]
) -> dict[str, Any]:
    """Our options from a model's config; `written` is the part that the project sets.

    Error: CONFIG_INVALID, listing everything wrong.
    """
    problems = [
        f"`{key}`: only for materialized views"
        for key in model_config.OWN_KEYS
        if config.get(key) is not None
    ]
    options: dict[str, Any] = {}
    for key in _LISTS:
        value = config.get(key) or []
        names = [value] if isinstance(value, str) else value
        if not isinstance(names, Sequence) or not all(isinstance(each, str) for each in names):
            problems.append(f"`{key}` must be a column or a list of columns, not {value!r}")
        else:
            options[key] = list(names)
    for key in _TEXTS:
        value = config.get(key)
        if value is not None and not isinstance(value, str):
            problems.append(f"`{key}` must be text, not {value!r}")
        elif value:
            options[key] = value
    # dbt's own default, which the project did not set, would silently leave columns out.
    if written.get("on_schema_change") is not None:
        options["on_schema_change"] = str(config["on_schema_change"])
    for key in _TIMES:
        if config.get(key) is not None:
            options[key] = config[key]
            try:
                event_times(
                    "", **{"lateness": None, "idle_after": None, key: config[key]}, late_data=""
                )
            except StreamSqlError as error:
                problems.append(f"{error.message}: {error.given}")
    if options.get("lateness") is not None and config.get(_EVENT_TIME):
        options[_EVENT_TIME] = config[_EVENT_TIME]
    own = {*OWN_KEYS, *model_config.OWN_KEYS}
    rest = {key: config[key] for key in config if key not in own}
    found = model_config.of_materialized_view(name, rest, problems, OWN_KEYS)
    return {**options, "properties": found["properties"]}


def stream_of(
    name: str, sources: Sequence[Mapping[str, Any]], root: Path | None = None
) -> dict[str, Any]:
    """The stream that a model reads: `stream`, `source` and `connection` of
    `Engine.create_streaming_table`. Relative paths begin at `root`, the project's folder.

    Error: CONFIG_INVALID unless it is the only source of the model, and declared as one.
    """
    if len(sources) != 1:
        raise StreamSqlError(
            "CONFIG_INVALID",
            "a streaming table must read exactly one source",
            given=", ".join(sorted(source["unique_id"] for source in sources)) or "none",
            allowed="one `source(…)`; use a materialized view to join streaming tables",
            place=Place(name),
        )
    source = sources[0]
    meta = (source.get("config") or {}).get("meta") or source.get("meta") or {}
    declared = meta.get(KEY)
    if not isinstance(declared, Mapping):
        raise StreamSqlError(
            "CONFIG_INVALID",
            f"{source['unique_id']} does not declare how to read its stream",
            given="no `meta: {streamsql: …}`" if declared is None else repr(declared),
            allowed="`config: {meta: {streamsql: {connector: …, options: …}}}` on the source",
            hint="docs/sources.md has an example of each connector",
            place=Place(name),
        )
    unknown = sorted(set(declared) - set(_DECLARED))
    if unknown:
        raise StreamSqlError(
            "CONFIG_INVALID",
            f"`meta.streamsql` of {source['unique_id']} has unknown keys",
            given=listed([f"`{key}`" for key in unknown]),
            allowed=", ".join(_DECLARED),
            place=Place(name),
        )
    spec = {key: value for key, value in declared.items() if key != "connection"}
    if root is not None and isinstance(spec.get("options"), Mapping):
        spec["options"] = _located(spec["options"], root)
    typed = [
        [column["name"], column["data_type"]]
        for column in source.get("columns", {}).values()
        if column.get("data_type")
    ]
    if typed and "schema" not in spec:
        spec["columns"] = typed
    parts = (source["database"], source["schema"], source["identifier"])
    return {
        "stream": ".".join(f"`{part.replace('`', '``')}`" for part in parts),
        "source": spec,
        "connection": str(declared.get("connection") or ""),
    }


def of_python(name: str, code: str, warehouse: str) -> dict[str, Any]:
    """What a Python model returns, as a stream; its checkpoint is next to the tables."""
    table = TableName.parse(name)
    return {
        "stream": replace(table, table=f"{table.table}__stream").sql,
        "source": {
            "connector": PYTHON,
            "options": {"code": give(code), "checkpoint": f"{warehouse.rstrip('/')}/.streams"},
        },
        "connection": "",
    }


def _located(options: Mapping[str, Any], root: Path) -> dict[str, Any]:
    """The options with absolute paths: the next reader may start in another folder."""

    def whole(path: Any) -> Any:
        plain = isinstance(path, str) and ":" not in path
        return str(root / Path(path).expanduser()) if plain else path

    found = {key: whole(value) if key in _PATHS else value for key, value in options.items()}
    several = found.get("schema_files")
    if isinstance(several, Mapping):
        found["schema_files"] = {key: whole(path) for key, path in several.items()}
    return found
