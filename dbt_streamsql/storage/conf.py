"""A Spark session's settings: all of them, those for child sessions, and those for one block."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from dbt_streamsql.storage.locations import is_uri

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SNAPSHOT_PROPERTY = "spark.sql.iceberg.snapshot-property."
_ADAPTIVE = "spark.sql.adaptive.enabled"


def settings_of(spark: SparkSession) -> dict[str, str]:
    """Every setting, in both kinds of session."""
    found: Any = spark.conf.getAll
    return dict(found() if callable(found) else found)


def own_settings(spark: SparkSession) -> dict[str, str]:
    """The settings without those for single writes."""
    found = settings_of(spark).items()
    return {key: value for key, value in found if not key.startswith(_SNAPSHOT_PROPERTY)}


def catalog_kind(properties: Mapping[str, str]) -> str:
    """The type of an Iceberg catalog, such as `rest`, also where its class is named; '' for
    others."""
    named = properties.get("catalog-impl", "").rpartition(".")[2]
    return properties.get("type", "").lower() or named.removesuffix("Catalog").lower()


def kind_of(spark: SparkSession, catalog: str) -> str:
    """`catalog_kind` of a catalog of the session."""
    prefix = f"spark.sql.catalog.{catalog}."
    keys = ("type", "catalog-impl")
    return catalog_kind({key: str(spark.conf.get(prefix + key, "") or "") for key in keys})


def warehouse_of(spark: SparkSession, catalog: str) -> str:
    """The folder or URI where a catalog puts new tables; '' where it decides itself.

    What a REST catalog calls its `warehouse` is a name that only it knows.
    """
    told = str(spark.conf.get(f"spark.sql.catalog.{catalog}.warehouse", "") or "")
    return told if is_uri(told) or kind_of(spark, catalog) != "rest" else ""


def to_carry(spark: SparkSession, child: SparkSession) -> dict[str, str]:
    """The settings of `spark` that a child session lacks, without those for single writes."""
    present = settings_of(child)
    own = own_settings(spark).items()
    return {key: value for key, value in own if present.get(key) != value}


@contextmanager
def snapshot_properties(spark: SparkSession, values: Mapping[str, str]) -> Iterator[None]:
    """Set properties on every Iceberg snapshot that the session writes inside the block."""
    try:
        for name, value in values.items():
            spark.conf.set(f"{_SNAPSHOT_PROPERTY}{name}", value)
        yield
    finally:
        for name in values:
            spark.conf.unset(f"{_SNAPSHOT_PROPERTY}{name}")


@contextmanager
def over_few_rows(spark: SparkSession, few: bool = True) -> Iterator[None]:
    """Inside the block queries read `few` rows: Spark plans each once, and runs it as one job.

    With adaptive planning every stage would be its own job, which costs more than it can save.
    """
    with only_here(spark, {_ADAPTIVE: "false"} if few else {}):
        yield


@contextmanager
def only_here(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Spark's own settings, with these values inside the block."""
    before = {name: str(spark.conf.get(name)) for name in settings}
    try:
        for name, value in settings.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)
