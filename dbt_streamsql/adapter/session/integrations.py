"""The entries of dbt's `catalogs.yml`: Iceberg catalogs besides the profile's own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dbt.adapters.catalogs import CatalogIntegration, CatalogIntegrationConfig
from dbt_common.exceptions import DbtRuntimeError

from dbt_streamsql.adapter.common import secrets
from dbt_streamsql.adapter.common.error_messages import listed
from dbt_streamsql.adapter.profile.credentials import texts
from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.quoting import check_name
from dbt_streamsql.runtime.spark.settings import SessionSettings
from dbt_streamsql.storage.conf import catalog_kind
from dbt_streamsql.storage.locations import is_uri, under

FILE_FORMATS = ("parquet", "orc", "avro")
TYPES = {
    "iceberg": "",
    "glue": "glue",
    "hive_metastore": "hive",
    "iceberg_rest": "rest",
    "jdbc": "jdbc",
}
"""The types of entries of a `catalogs.yml` of version 2, and what Iceberg calls them ('': what
the entry's own `type` says, or a SQLite file)."""


def properties_of(entry_type: str, properties: Mapping[str, Any]) -> dict[str, Any]:
    """The properties of a catalog of an entry of version 2. Error: CONFIG_INVALID."""
    if entry_type not in TYPES:
        error = StreamSqlError(
            "CONFIG_INVALID",
            "unknown `type` of a catalog in catalogs.yml",
            given=repr(entry_type),
            allowed=", ".join(TYPES),
            hint="write what Iceberg knows of the catalog below `config: streamsql:`",
        )
        raise DbtRuntimeError(str(error))
    named = {"type": TYPES[entry_type]} if TYPES[entry_type] else {}
    return named | dict(properties)


class IcebergCatalog(CatalogIntegration):
    """`catalog_type: iceberg`. The entry's name is the Spark catalog's, `external_volume` its
    warehouse (a folder, relative to the project, or a URI), `adapter_properties` its own
    properties; without `type` or `uri` among them it is kept in a SQLite file, like the profile's.
    """

    catalog_type = "iceberg"
    table_format = "iceberg"
    allows_writes = True

    def __init__(self, config: CatalogIntegrationConfig) -> None:
        """Error: CONFIG_INVALID, listing everything wrong."""
        super().__init__(config)
        self.properties: dict[str, Any] = dict(config.adapter_properties or {})
        found = {"adapter_properties": self.properties}
        secrets.remember(secret for _, secret in secrets.of_profile(found))
        problems = list(secrets.problems_of(found))
        try:
            check_name(self.name, "catalog")
        except StreamSqlError as error:
            problems.append(f"`name`: {error.message}")
        if (self.table_format or "").lower() != "iceberg":
            problems.append(f"`table_format` must be iceberg, not {self.table_format!r}")
        if self.file_format and self.file_format.lower() not in FILE_FORMATS:
            allowed = ", ".join(FILE_FORMATS)
            problems.append(f"`file_format` must be one of {allowed}, not {self.file_format!r}")
        volume = self.external_volume or ""
        if not volume and catalog_kind(texts(self.properties)) != "rest":
            problems.append("`external_volume` is missing: the folder or URI of the tables")
        elif is_uri(volume) and not self.properties:
            problems.append("an `external_volume` URI needs `adapter_properties` (type, uri)")
        if problems:
            error = StreamSqlError(
                "CONFIG_INVALID",
                f"invalid catalog {self.name!r} in catalogs.yml",
                given=listed(problems),
                hint="correct catalogs.yml; docs/profile.md describes every key",
            )
            raise DbtRuntimeError(str(error))

    def settings(self, root: Path, iceberg: str = "") -> SessionSettings:
        """As a catalog of a session, with its folder resolved against the project's; `iceberg`:
        that of the profile."""
        warehouse, properties = self.external_volume or "", texts(self.properties)
        if catalog_kind(properties) == "rest" and warehouse and not is_uri(warehouse):
            properties.setdefault("warehouse", warehouse)
            warehouse = ""
        if self.file_format:
            properties["table-default.write.format.default"] = self.file_format.lower()
        return SessionSettings(
            catalog=self.name,
            warehouse=under(root, warehouse),
            catalog_properties=properties,
            iceberg=iceberg,
        )
