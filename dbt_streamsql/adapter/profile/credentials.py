"""The profile: its keys, what they may hold, and what they mean for the session."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Dict, List, Optional  # noqa: UP035 - evaluated by mashumaro on 3.10

from dbt.adapters.contracts.connection import Credentials
from dbt_common.exceptions import DbtRuntimeError

from dbt_streamsql.adapter.common import secrets
from dbt_streamsql.adapter.common.error_messages import listed
from dbt_streamsql.byte_sizes import bytes_of
from dbt_streamsql.durations import retention_of
from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.meta import LEVELS
from dbt_streamsql.meta.model.addresses import STORE_FILE, in_file, store_of
from dbt_streamsql.quoting import check_name
from dbt_streamsql.runtime.spark.jars import CONNECTORS, embedded_jars
from dbt_streamsql.runtime.spark.settings import METHODS, SessionSettings
from dbt_streamsql.storage.locations import Roots, is_uri, under

POLICIES = ("run", "passed_subgraph", "model")
"""When a run is published: at its end if nothing failed; at its end, without what failed and what
depends on it; each view as soon as it is built."""

DEFAULT_CATALOG = "lake"
DEFAULT_WAREHOUSE = "warehouse"

_TEXT = (
    "database",
    "schema",
    "warehouse",
    "meta",
    "meta_token",
    "boundary",
    "method",
    "host",
    "token",
    "master",
    "iceberg",
)
_MAPPINGS = ("catalog_properties", "spark_properties")
_KEYS = (
    "catalog",
    *_TEXT,
    "port",
    "server",
    "consistency",
    "publish",
    "query_timeout",
    "retain",
    "retain_barriers",
    "state_budget",
    *_MAPPINGS,
    "allowed_roots",
    "connections",
    "connectors",
    "native",
)
_CHANGE_TEXTS = (
    "spark.sql.variable.substitute",
    "spark.sql.parser.escapedStringLiterals",
    "spark.sql.ansi.doubleQuotedIdentifiers",
)
_SHOWN_AS = {"database": "catalog"}


@dataclass
class StreamSqlCredentials(Credentials):
    """`type: streamsql` and `schema` are a complete profile; everything else has a default."""

    # Spark's catalog; `catalog` in the profile.
    database: str = DEFAULT_CATALOG
    # dbt's target schema. A default only because a field before it has one; it is required.
    schema: str = ""
    # Folder (relative to the dbt project) or URI of the tables.
    warehouse: Optional[str] = None  # noqa: UP045 - evaluated by mashumaro on 3.10
    # Folders and URIs besides the warehouse where models may keep files.
    allowed_roots: List[str] = field(default_factory=list)  # noqa: UP006
    # The catalog's own properties; with `type` or `uri` they replace the SQLite catalog.
    catalog_properties: Dict[str, Any] = field(default_factory=dict, repr=False)  # noqa: UP006
    # SQLAlchemy URL of the MetaService store, or the http(s) address of a MetaService.
    meta: Optional[str] = field(default=None, repr=False)  # noqa: UP045
    # For a MetaService; one on this host has its token in a file.
    meta_token: Optional[str] = field(default=None, repr=False)  # noqa: UP045
    # The part of the topology that this target runs, with its own barriers.
    boundary: Optional[str] = None  # noqa: UP045
    # embedded: a Spark in this process; connect: sc://host:port; cluster: the driver is here.
    method: str = "embedded"
    host: Optional[str] = None  # noqa: UP045
    port: Optional[int] = None  # noqa: UP045
    token: Optional[str] = field(default=None, repr=False)  # noqa: UP045
    master: Optional[str] = None  # noqa: UP045
    # What queries outside a run see.
    consistency: str = "read_committed"
    # When a run is published: run, passed_subgraph, model.
    publish: str = "run"
    # Whether `embedded` uses the warm engine of this warehouse when one is up.
    server: bool = True
    # Seconds that one statement, or the refresh of one view, may take.
    query_timeout: Optional[int] = None  # noqa: UP045
    # How long a barrier stays readable after it ended, and how many of the newest, at most.
    retain: Any = "7 days"
    retain_barriers: int = 300
    # The bytes of all state tables above which `state: auto` stores no more.
    state_budget: Any = "20 GB"
    # Any Spark settings; they win over the adapter's.
    spark_properties: Dict[str, Any] = field(default_factory=dict, repr=False)  # noqa: UP006

    # Options of streams by name; sources set `connection: <name>`.
    connections: Dict[str, Any] = field(default_factory=dict, repr=False)  # noqa: UP006

    # Spark's modules that read Kafka and Avro.
    connectors: List[str] = field(default_factory=list)  # noqa: UP006

    # Whether an embedded Spark runs native code where it can.
    native: bool = False

    # The version of Iceberg's runtime, or `provided`; by default the newest one tested.
    iceberg: Optional[str] = None  # noqa: UP045

    _ALIASES: ClassVar[Dict[str, str]] = {"catalog": "database"}  # noqa: UP006

    @property
    def type(self) -> str:
        return "streamsql"

    @property
    def unique_field(self) -> str:
        return self.host or self.master or "embedded"

    def _connection_keys(self) -> tuple[str, ...]:
        # No tokens, and no properties: both kinds may hold passwords.
        return ("method", "database", "schema", "warehouse", "host", "port", "master", "meta")

    def connection_info(self, *, with_aliases: bool = False) -> Iterable[tuple[str, Any]]:
        """Key and value pairs for `dbt debug` and the `target` of macros, without secrets."""
        for key, value in super().connection_info(with_aliases=with_aliases):
            yield key, secrets.scrub(value) if isinstance(value, str) else value

    @classmethod
    def validate(cls, data: Any) -> None:
        """Refuse a profile with ONE error that lists everything wrong. Code: CONFIG_INVALID.

        From here on, no message shows a secret of the profile.
        """
        secrets.remember(secret for _, secret in secrets.of_profile(data))
        problems = list(_problems(data))
        if problems:
            error = StreamSqlError(
                "CONFIG_INVALID",
                "the profile has " + ("an error" if len(problems) == 1 else "errors"),
                given=secrets.scrub(listed(problems)),
                allowed=", ".join(key for key in _KEYS if key not in _SHOWN_AS) + ", threads",
                hint="correct profiles.yml; docs/profile.md describes every key",
            )
            raise DbtRuntimeError(str(error))

    @property
    def engine_options(self) -> dict[str, Any]:
        """The fields of `EngineOptions`; those of `connections` are in Spark's spelling."""
        return {
            "meta_token": self.meta_token or "",
            "query_timeout": self.query_timeout,
            "consistency": self.consistency,
            "retain": self.retain,
            "retain_barriers": self.retain_barriers,
            "state_budget": self.state_budget,
            "connections": {name: texts(options) for name, options in self.connections.items()},
        }

    def settings(self, root: Path) -> SessionSettings:
        """How to reach Spark, with folders resolved against `root`, the dbt project's folder."""
        warehouse = self.warehouse or ("" if self.method == "connect" else DEFAULT_WAREHOUSE)
        return SessionSettings(
            method=self.method,
            host=self.host or "",
            port=self.port or 0,
            token=self.token or "",
            master=self.master or "",
            catalog=self.database,
            warehouse=under(root, warehouse),
            catalog_properties=texts(self.catalog_properties),
            spark_properties=texts(self.spark_properties),
            connectors=tuple(sorted(set(self.connectors))),
            native=self.native,
            iceberg=self.iceberg or "",
        )

    def roots(self, root: Path) -> Roots:
        """Where models may keep files: the warehouse and the profile's `allowed_roots`."""
        places = [self.settings(root).warehouse, *(under(root, p) for p in self.allowed_roots)]
        return Roots(root, tuple(place for place in places if place))

    def meta_url(self, root: Path) -> str:
        """The MetaService store: the profile's, or a SQLite file next to the tables."""
        return store_of(self.meta or self.meta_file(root), self.boundary or "")

    def meta_file(self, root: Path) -> str:
        """The store of a profile without one: a SQLite file next to the tables."""
        warehouse = self.settings(root).warehouse
        folder = root / DEFAULT_WAREHOUSE
        if warehouse and not is_uri(warehouse):
            folder = Path(warehouse)
        return in_file(folder / STORE_FILE)


def _problems(data: Any) -> Iterator[str]:
    known = {*_KEYS, "type"}
    for key in data:
        if key not in known:
            near = difflib.get_close_matches(str(key), _KEYS, 1)
            yield f"unknown key `{key}`" + (f" (did you mean `{near[0]}`?)" if near else "")
    for key in _TEXT:
        value, shown = data.get(key), _SHOWN_AS.get(key, key)
        if value is not None and not isinstance(value, str):
            yield f"`{shown}` must be text, not {_kind(value)} (put it in quotes)"
    for key in _MAPPINGS:
        yield from _mapping_problems(key, data.get(key))
    yield from _connection_problems(data.get("connections"))
    yield from _connector_problems(data.get("connectors"))
    yield from _iceberg_problems(data.get("iceberg"))
    yield from _root_problems(data.get("allowed_roots"))
    yield from secrets.problems_of(data)
    yield from _server_problems(data)
    yield from _name_problems(data)
    method = data.get("method")
    if isinstance(method, str):
        if method not in METHODS:
            yield f"`method` must be one of {', '.join(METHODS)}, not {method!r}"
        if method == "connect" and not data.get("host"):
            yield "`method: connect` needs a `host`"
        if data.get("native") and method != "embedded":
            yield f"`native` is for `method: embedded`, not {method}"
        if method == "cluster" and not data.get("master"):
            yield "`method: cluster` needs a `master`, such as spark://host:7077"
    yield from _meta_problems(data)
    yield from _warehouse_problems(data)


def _warehouse_problems(data: Any) -> Iterator[str]:
    warehouse, connectors = data.get("warehouse"), data.get("connectors") or ()
    if not isinstance(warehouse, str) or not is_uri(warehouse):
        return
    if not data.get("catalog_properties") and "glue" not in connectors:
        yield "a `warehouse` URI needs `catalog_properties` with a `type`: SQLite needs a folder"


def _meta_problems(data: Any) -> Iterator[str]:
    meta = data.get("meta")
    if data.get("meta_token") and not str(meta).startswith(("http://", "https://")):
        yield "`meta_token` needs a MetaService as `meta`, such as http://127.0.0.1:8123"
    boundary = data.get("boundary")
    if isinstance(boundary, str):
        try:
            store_of(str(meta or "sqlite:///file.db"), boundary)
        except StreamSqlError as error:
            yield f"`boundary`: {error.message} ({error.given}; {error.allowed or error.hint})"


def _mapping_problems(key: str, value: Any) -> Iterator[str]:
    if value is None:
        return
    if not isinstance(value, dict):
        yield f"`{key}` must be a mapping, not {_kind(value)}"
        return
    for name, inner in value.items():
        if not isinstance(name, str):
            yield f"a key of `{key}` must be text, not {name!r}"
        elif not isinstance(inner, (str, int, float)):
            yield f"`{key}: {name}` must be text, a number or true/false, not {_kind(inner)}"
        elif name in _CHANGE_TEXTS and str(inner).lower() != "false":
            yield f"`{key}: {name}` changes the meaning of quoted strings: only false is allowed"


def _connection_problems(value: Any) -> Iterator[str]:
    if value is None:
        return
    if not isinstance(value, dict):
        yield f"`connections` must be a mapping of names to options, not {_kind(value)}"
        return
    for name, options in value.items():
        if options is None:
            yield f"`connections: {name}` has no options"
        yield from _mapping_problems(f"connections: {name}", options)


def _connector_problems(value: Any) -> Iterator[str]:
    known = isinstance(value, list) and all(name in CONNECTORS for name in value)
    if value is not None and not known:
        yield f"`connectors` must be a list of {', '.join(CONNECTORS)}, not {value!r}"


def _iceberg_problems(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        try:
            embedded_jars(value)
        except StreamSqlError as error:
            yield f"`iceberg`: {error.message} ({error.given}; tested: {error.allowed})"


def _root_problems(value: Any) -> Iterator[str]:
    if value is None:
        return
    if not isinstance(value, list) or not all(isinstance(place, str) and place for place in value):
        yield f"`allowed_roots` must be a list of folders and URIs, not {_kind(value)}"


def _server_problems(data: Any) -> Iterator[str]:
    port = data.get("port")
    level = data.get("consistency", LEVELS[1])
    if level not in LEVELS:
        yield f"`consistency` must be one of {', '.join(LEVELS)}, not {level!r}"
    policy = data.get("publish", POLICIES[0])
    if policy not in POLICIES:
        yield f"`publish` must be one of {', '.join(POLICIES)}, not {policy!r}"
    if port is not None and (type(port) is not int or not 0 < port < 65536):
        yield f"`port` must be a number from 1 to 65535, not {port!r}"
    for switch in ("server", "native"):
        if not isinstance(data.get(switch, True), bool):
            yield f"`{switch}` must be true or false, not {data[switch]!r}"
    seconds = data.get("query_timeout")
    if seconds is not None and (type(seconds) is not int or seconds < 1):
        yield f"`query_timeout` must be a whole number of seconds, at least 1, not {seconds!r}"
    try:
        bytes_of(data.get("state_budget", 0), "state_budget")
    except StreamSqlError as error:
        yield f"{error.message} ({error.given}; allowed: {error.allowed})"
    kept = {key: data[key] for key in ("retain", "retain_barriers") if data.get(key) is not None}
    try:
        retention_of(kept.get("retain", 0), kept.get("retain_barriers", 1))
    except StreamSqlError as error:
        yield f"{error.message} ({error.given}; allowed: {error.allowed})"


def _name_problems(data: Any) -> Iterator[str]:
    if not data.get("schema"):
        yield "`schema` is missing"
    for key, what in (("schema", "schema"), ("database", "catalog")):
        value = data.get(key)
        if isinstance(value, str) and value:
            try:
                check_name(value, what)
            except StreamSqlError as error:
                yield f"`{what}`: {error.message} ({error.given})"


def _kind(value: Any) -> str:
    names = {dict: "a mapping", list: "a list", bool: "true/false", int: "a number"}
    return names.get(type(value), type(value).__name__)


def texts(values: dict[str, Any]) -> dict[str, str]:
    """YAML values as Spark spells them: `true`, not `True`."""
    return {
        key: str(value).lower() if isinstance(value, bool) else str(value)
        for key, value in values.items()
    }
