"""How to reach Spark, and the settings of its catalog."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.quoting import check_name
from dbt_streamsql.runtime.spark import jars, native
from dbt_streamsql.runtime.spark.pinned_jars import NOT_OVER_SQLITE, Jar
from dbt_streamsql.storage.conf import catalog_kind
from dbt_streamsql.storage.iceberg import caching_io
from dbt_streamsql.storage.locations import is_uri

METHODS = ("embedded", "connect", "cluster")
CATALOG_FILE = "catalog.db"

_CATALOG_KEYS = frozenset({"type", "catalog-impl", "uri"})
"""Properties that say which catalog it is."""

_ICEBERG_CATALOG = "org.apache.iceberg.spark.SparkCatalog"
DEFAULT_CATALOG = "spark.sql.defaultCatalog"


@dataclass(frozen=True)
class SessionSettings:
    """How to reach Spark. `warehouse` is a folder (made absolute) or a URI; '' only for connect
    and for REST catalogs, which say where their tables are.

    `user` is the name that a Spark Connect server knows this client by ('': the system's).
    `catalog_properties` are the catalog's own (`type`, `uri`, …), without Spark's prefix.
    `spark_properties` win over every setting made here. Both hold only strings. `connectors` are
    names of `jars.CONNECTORS`; a Spark Connect server must have its own. `native`: an embedded
    Spark runs native code where it can. `iceberg`: a version of its runtime, or `provided` (see
    `jars.embedded_jars`).
    """

    method: str = "embedded"
    host: str = ""
    port: int = 0
    token: str = field(default="", repr=False)
    user: str = ""
    master: str = ""
    catalog: str = "lake"
    warehouse: str = ""
    catalog_properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    spark_properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    connectors: tuple[str, ...] = ()
    native: bool = False
    iceberg: str = ""

    def __post_init__(self) -> None:
        check_name(self.catalog, "catalog")
        problem = ""
        unknown = sorted(set(self.connectors) - set(jars.CONNECTORS))
        if self.method not in METHODS:
            problem = f"`method` {self.method!r} is not one of {', '.join(METHODS)}"
        elif unknown:
            problem = (
                f"`connectors` has {', '.join(unknown)}, not one of {', '.join(jars.CONNECTORS)}"
            )
        elif self.method == "connect" and not self.host:
            problem = "`method: connect` needs a `host`"
        elif self.method == "cluster" and not self.master:
            problem = "`method: cluster` needs a `master`, such as spark://host:7077"
        elif self.native and self.method != "embedded":
            problem = f"`native` is for `method: embedded`, not for {self.method}"
        elif self.native and (why := native.obstacle()):
            problem = f"`native` is not possible: {why}"
        elif self.method != "connect" and not self.warehouse and self.kind != "rest":
            problem = f"`method: {self.method}` needs a `warehouse`"
        elif self.method != "connect" and self._is_stuck_on_sqlite():
            problem = not_over_sqlite(self.iceberg or "of STREAMSQL_ICEBERG")
        elif self._has_glue_in_a_folder():
            problem = "AWS Glue needs a `warehouse` URI, such as s3://bucket/path"
        elif is_uri(self.warehouse) and not self.has_own_catalog:
            problem = (
                "a `warehouse` URI needs `catalog_properties` (type, uri): SQLite is a local file"
            )
        if problem:
            raise StreamSqlError("CONFIG_INVALID", problem)

    def _is_stuck_on_sqlite(self) -> bool:
        version = jars.chosen(self.iceberg) if self.is_on_sqlite else None
        return version is not None and version.version in NOT_OVER_SQLITE

    @property
    def is_on_sqlite(self) -> bool:
        """Whether the catalog is kept in a SQLite file."""
        uri = self.catalog_properties.get("uri", "")
        return not self.has_own_catalog or uri.startswith("jdbc:sqlite:")

    def _has_glue_in_a_folder(self) -> bool:
        warehouse = self.catalog_properties.get("warehouse", self.warehouse)
        return self.method != "connect" and self.kind == "glue" and not is_uri(warehouse)

    @property
    def kind(self) -> str:
        """The type of the catalog that the profile names by its properties or by a connector, such
        as `glue`; '' where it names none: then it is a SQLite file."""
        if _CATALOG_KEYS & set(self.catalog_properties):
            return catalog_kind(self.catalog_properties) or "other"
        return "glue" if "glue" in self.connectors else ""

    @property
    def has_own_catalog(self) -> bool:
        return bool(self.kind)

    @property
    def jars(self) -> tuple[Jar, ...]:
        """What an embedded session needs on its class path."""
        return jars.wanted(self.connectors, native=self.native, iceberg=self.iceberg)


def catalog_settings(settings: SessionSettings) -> dict[str, str]:
    """The `spark.sql.catalog.*` settings of the catalog, and that it is the default one."""
    prefix = f"spark.sql.catalog.{settings.catalog}"
    own = {"cache-enabled": "false"}  # with the cache a session does not see others' commits
    if settings.warehouse:
        own["warehouse"] = located(settings.warehouse)
    file = catalog_file(settings)
    if file is not None:
        own["type"] = "jdbc"
        own["uri"] = f"jdbc:sqlite:{file}?journal_mode=WAL&busy_timeout=20000"
        own["jdbc.schema-version"] = "V1"  # without it the catalog stores no views
    elif settings.kind == "rest" and not is_uri(settings.warehouse):
        own.pop("warehouse", None)  # what a server calls its warehouses is no folder of ours
    own |= settings.catalog_properties
    if not _CATALOG_KEYS & set(own):
        own["type"] = settings.kind
    # Kryo would send the class itself to executors, which do not have it.
    kryo = "Kryo" in settings.spark_properties.get("spark.serializer", "")
    if settings.method == "embedded" or (settings.method == "cluster" and not kryo):
        own = caching_io.added_to(own)
    return {
        prefix: _ICEBERG_CATALOG,
        **{f"{prefix}.{key}": value for key, value in own.items()},
        DEFAULT_CATALOG: settings.catalog,
    }


def catalog_file(settings: SessionSettings) -> Path | None:
    """The SQLite file of the catalog; None when the profile has a catalog of its own."""
    if settings.has_own_catalog:
        return None
    return Path(located(settings.warehouse)) / CATALOG_FILE


def not_over_sqlite(iceberg: str) -> str:
    return (
        f"Iceberg {iceberg} needs a catalog of your own (`catalog_properties`): it does not see "
        "changes of a SQLite catalog"
    )


def located(warehouse: str) -> str:
    """The folder, absolute; a URI unchanged."""
    return warehouse if is_uri(warehouse) else str(Path(warehouse).expanduser().absolute())
