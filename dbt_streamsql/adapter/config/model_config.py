"""The model config: which keys are ours, their allowed values, and how a result reads."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from typing import TYPE_CHECKING, Any

from dbt.adapters.contracts.connection import AdapterResponse
from dbt.adapters.spark.impl import SparkConfig

from dbt_streamsql.adapter.common.error_messages import listed
from dbt_streamsql.adapter.config.freshness import freshness_of
from dbt_streamsql.adapter.config.layout import NOT_MAINTAINED, unmaintained
from dbt_streamsql.durations import seconds_of
from dbt_streamsql.errors import Place, StreamSqlError
from dbt_streamsql.meta import check_level
from dbt_streamsql.plan.compiled import REFRESH_MODES
from dbt_streamsql.plan.definition.stored_part import State, state_of
from dbt_streamsql.quoting import expression
from dbt_streamsql.state_ttl import as_data, state_ttl_of
from dbt_streamsql.storage.locations import PATH_PROPERTIES, PLACING_PROPERTIES, Roots

if TYPE_CHECKING:
    from dbt_streamsql.engine import TableReport

OWN_KEYS = ("refresh_mode", "changelog", "state", "state_ttl", "plan")
"""Config keys of a materialized view that dbt does not know."""

READ_KEYS = ("consistency", "max_staleness")
"""Config keys of every node that reads."""

BRANCH_KEYS = ("sink", "columns")
"""Config keys of every model that can be a branch of a wide table."""

TABLE_PROPERTIES = {
    "format-version": "3",
    # Each commit writes a metadata file; without these they pile up forever.
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "10",
}

_EXPRESSIONS = ("incremental_predicates", "predicates", "event_time", "dbt_valid_to_current")
"""Config keys that hold SQL expressions, or lists of them."""

_PLACED = ("location_root", "options")
_SNAPSHOT_EXPRESSIONS = ("unique_key", "updated_at", "check_cols")
_SIMPLE = re.compile(r"[A-Za-z_]\w*", re.ASCII)


@dataclass
class ViewResponse(AdapterResponse):
    """What a run did to a materialized view, as `run_results.json` stores it."""

    mode: str = ""
    reason: str = ""
    rows_inserted: int = 0
    rows_deleted: int = 0
    jobs: int = 0
    seconds: float = 0.0
    barrier: int = 0
    strategy: str = ""
    rows_read: int = 0
    bytes_read: int = 0
    reads: Mapping[str, int] = field(default_factory=dict)
    estimated_incremental: float | None = None
    estimated_compare: float | None = None
    estimated_full: float | None = None
    definition: str = ""
    started_at: float | None = None
    delay: float | None = None


def response_of(report: TableReport) -> ViewResponse:
    """The engine's report as dbt's response."""
    return ViewResponse(
        _message=message_of(report),
        code=report.mode.upper(),
        rows_affected=report.rows_inserted + report.rows_deleted,
        mode=report.mode,
        reason=report.reason,
        rows_inserted=report.rows_inserted,
        rows_deleted=report.rows_deleted,
        jobs=report.jobs,
        seconds=round(report.seconds, 3),
        barrier=report.barrier,
        strategy=report.strategy,
        rows_read=report.rows_read,
        bytes_read=report.bytes_read,
        reads=dict(report.reads),
        estimated_incremental=report.estimated_incremental,
        estimated_compare=report.estimated_compare,
        estimated_full=report.estimated_full,
        definition=report.definition,
        started_at=report.started_at,
        delay=None if report.delay is None else round(report.delay, 3),
    )


@dataclass(frozen=True)
class Reads:
    """How a node reads. `consistency` None: within a run what it has staged, else the profile's;
    `max_staleness` is in seconds."""

    consistency: str | None = None
    max_staleness: float | None = None


def reads_of(name: str, config: Mapping[str, Any], variables: Mapping[str, Any]) -> Reads:
    """From a node's config, else from `--vars`. Error: CONFIG_INVALID."""
    level, bound = (
        value if (value := config.get(key)) is not None else variables.get(key)
        for key in READ_KEYS
    )
    try:
        return Reads(
            check_level(str(level)) if level is not None else None,
            seconds_of(bound, "max_staleness") if bound is not None else None,
        )
    except StreamSqlError as error:
        raise error.at(Place(name)) from error


def check(name: str, config: Mapping[str, Any], roots: Roots) -> None:
    """Check the config of a model that is not a materialized view.

    Errors: CONFIG_INVALID, EXPRESSION_INVALID, PATH_OUTSIDE.
    """
    found = [key for key in OWN_KEYS if config.get(key) is not None]
    if found:
        raise StreamSqlError(
            "CONFIG_INVALID",
            f"`{'`, `'.join(found)}`: only for materialized views",
            given=f"materialized: {config.get('materialized')}",
            hint="set `materialized: materialized_view`, or remove the key",
            place=Place(name),
        )
    try:
        located(config, roots)
        for key, text in _expressions(config):
            expression(text, key)
    except StreamSqlError as error:
        raise error.at(Place(name)) from error
    for key, value in (config.get("snapshot_table_column_names") or {}).items():
        if not isinstance(value, str) or not _SIMPLE.fullmatch(value):
            raise StreamSqlError(
                "CONFIG_INVALID",
                f"`snapshot_table_column_names: {key}` is not a plain name",
                given=repr(value),
                allowed="letters, digits and _",
                place=Place(name),
            )


def located(config: Mapping[str, Any], roots: Roots) -> dict[str, Any]:
    """Those of `location_root`, `tblproperties` and `options` that the config has, with all file
    locations made absolute.

    Errors: PATH_OUTSIDE; CONFIG_INVALID for a property that lets other code choose.
    """
    found: dict[str, Any] = {}
    if config.get("location_root") is not None:
        found["location_root"] = roots.locate(config["location_root"], "location_root")
    for group in ("tblproperties", "options"):
        if config.get(group):
            found[group] = dict(config[group])
        for key, value in found.get(group, {}).items():
            if str(key).lower() in PLACING_PROPERTIES:
                raise StreamSqlError(
                    "CONFIG_INVALID",
                    f"`{group}: {key}` lets other code choose where files are stored",
                    hint="remove it; set the place with `location_root` or `write.data.path`",
                )
            if str(key).lower() in PATH_PROPERTIES:
                found[group][key] = roots.locate(value, f"{group}: {key}")
    return found


def _expressions(config: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    keys = _EXPRESSIONS
    if config.get("materialized") == "snapshot":
        keys += _SNAPSHOT_EXPRESSIONS
    for key in keys:
        value = config.get(key)
        for text in value if isinstance(value, list) else [value]:
            if text is not None:
                yield key, text


def of_materialized_view(
    name: str,
    config: Mapping[str, Any],
    found: Iterable[str] = (),
    own_keys: Collection[str] = OWN_KEYS,
) -> dict[str, Any]:
    """Our options from a model's config. Error: CONFIG_INVALID, listing everything wrong.

    `found`: other problems; `own_keys`: those of this kind of model.
    """
    from dbt_streamsql.storage.iceberg.staging import VIEW_PROPERTIES

    problems = [*found, *unmaintained(config)]
    for key in config:
        if key not in {*_known_keys(), *READ_KEYS, *BRANCH_KEYS}:
            near = difflib.get_close_matches(key, [*own_keys, *_known_keys()], 1)
            hint = f" (did you mean `{near[0]}`?)" if near else ""
            problems.append(f"unknown key `{key}`{hint}")
    if config.get("sql_header"):
        problems.append("`sql_header` is only for models that run in their own session")
    properties = {str(k): _text(v) for k, v in (config.get("tblproperties") or {}).items()}
    problems += [
        f"`tblproperties` must not contain `{key}`: the engine sets it"
        for key in properties
        if key in VIEW_PROPERTIES or key.startswith("streamsql.")
    ]
    properties |= freshness_of(config, problems).as_properties()
    places = [key for key in _PLACED if config.get(key) is not None]
    places += [key for key in properties if key.lower() in PATH_PROPERTIES | PLACING_PROPERTIES]
    problems += [f"`{key}`: maintained tables are stored in the warehouse" for key in places]
    mode = config.get("refresh_mode") or "auto"
    if mode not in REFRESH_MODES:
        problems.append(f"`refresh_mode` must be one of {', '.join(REFRESH_MODES)}, not {mode!r}")
    changelog = config.get("changelog")
    if changelog not in (None, True, False):
        problems.append(f"`changelog` must be true or false, not {changelog!r}")
    state: State = "auto"
    try:
        given = config.get("state")
        state = state_of("auto" if given is None else given, Place(name))
    except StreamSqlError as error:
        problems.append(f"{error.message}: {error.given} (allowed: {error.allowed})")
    plan = config.get("plan")
    if not isinstance(plan, str | None):
        problems.append(f"`plan` must be the path or URI of a plan file, not {plan!r}")
    try:
        # A view reads its inputs at its own barrier, but a folder's config may say more.
        reads_of(name, config, {})
    except StreamSqlError as error:
        problems.append(f"{error.message}: {error.given} (allowed: {error.allowed})")
    try:
        ttl = as_data(state_ttl_of(config.get("state_ttl"), "", Place(name)))
    except StreamSqlError as error:
        problems.append(f"{error.message}: {error.given}")
    if problems:
        raise StreamSqlError(
            "CONFIG_INVALID",
            "the model's config has " + ("an error" if len(problems) == 1 else "errors"),
            given=listed(problems),
            allowed=f"{', '.join(own_keys)} and the keys that dbt defines",
            hint="correct the config; put custom keys under `meta`",
            place=Place(name),
        )
    return {
        "refresh_mode": mode,
        "properties": properties,
        "changelog": bool(changelog),
        "state": state,
        "state_ttl": ttl,
    }


def names_of(value: str | Iterable[str] | None) -> list[str]:
    """A config value that is one name or several."""
    return [value] if isinstance(value, str) else list(value or ())


def changes(known: Mapping[str, Any] | None, wanted: Mapping[str, Any]) -> str:
    """What a new config means for an existing view.

    `alter`: its table gets other properties, it gains or loses its changelog, or changes are
    applied by another rule; `replace`: it is also recomputed; '' nothing.
    """
    if known is None or _without_hints(known) == wanted:
        return ""
    modes = {known["refresh_mode"], wanted["refresh_mode"]}
    return "replace" if len(modes) > 1 and "full" in modes else "alter"


def _without_hints(known: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration without its query's hints, which belong to the query."""
    ttl = {key: value for key, value in known["state_ttl"].items() if key != "hints"}
    return {**known, "state_ttl": {} if ttl == {"default": 0.0} else ttl}


def parameters_of(function: Mapping[str, Any]) -> list[dict[str, str | None]]:
    """The arguments of a `function` node. A default that is text is already an expression."""
    return [
        {
            "name": argument["name"],
            "type": argument["data_type"],
            "default": None if default is None else _text(default),
        }
        for argument in function["arguments"]
        for default in [argument.get("default_value")]
    ]


def message_of(report: TableReport) -> str:
    """The message of dbt's log line: `INCREMENTAL +12 -3 (8 jobs, 1.2s)`.

    With the verdict on a new definition, and with the reason where there is one.
    """
    why = report.reason if report.mode == "full" else ""
    if report.definition:
        why = f"{report.definition}: {report.reason}"
    if report.mode == "noop":
        return f"NOOP: {why}" if why else "NOOP"
    jobs = "1 job, " if report.jobs == 1 else f"{report.jobs} jobs, "
    if report.jobs < 0:
        jobs = ""  # not counted over Spark Connect
    rows = f"+{report.rows_inserted} -{report.rows_deleted}"
    text = f"{report.mode.upper()} {rows} ({jobs}{report.seconds:.1f}s)"
    return f"{text}: {why}" if why else text


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@cache
def _known_keys() -> frozenset[str]:
    from dbt.artifacts.resources import ModelConfig

    known = {item.name for item in fields(ModelConfig)} | {f.name for f in fields(SparkConfig)}
    # Spelled with hyphens or read by macros only.
    known |= {"pre-hook", "post-hook", "tblproperties", "sql_header", "transient", "catalog_name"}
    known |= {*OWN_KEYS, *NOT_MAINTAINED}
    return frozenset(key for key in known if not key.startswith("_"))
