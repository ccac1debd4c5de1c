"""A dbt model as the plain table that the engine builds: its shape and its constraints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dbt.adapters.events.logging import AdapterLogger

from dbt_streamsql.adapter.config.layout import partition_fields
from dbt_streamsql.adapter.config.model_config import TABLE_PROPERTIES, located
from dbt_streamsql.adapter.profile.credentials import texts
from dbt_streamsql.errors import Place, StreamSqlError
from dbt_streamsql.quoting import TableName, expression
from dbt_streamsql.runtime.publish.constraints import KINDS, Constraint
from dbt_streamsql.storage.locations import Roots
from dbt_streamsql.storage.staged_table import TableSpec

ATOMIC = "atomic"
FLIP_OPTION = "table.ctas.atomicity-enabled"
"""FLIP-305's name for the same choice, for a whole profile: a key of `spark_properties`."""

logger = AdapterLogger("StreamSQL")


def spec_of(
    name: TableName, model: Mapping[str, Any], config: Mapping[str, Any], roots: Roots
) -> TableSpec:
    """The table that a model asks for. Errors: CONFIG_INVALID, PATH_OUTSIDE."""
    form = str(config.get("file_format") or "iceberg").lower()
    comment, comments = comments_of(str(name), {**model, "config": config})
    buckets = config.get("buckets") or 0
    if not isinstance(buckets, int):
        raise StreamSqlError(
            "CONFIG_INVALID",
            "`buckets` must be a whole number",
            given=repr(buckets),
            place=Place(str(name)),
        )
    places = located(config, roots)
    root = places.get("location_root")
    return TableSpec(
        name,
        form,
        partition_by=partition_fields(config.get("partition_by")),
        clustered_by=_listed(config.get("clustered_by")),
        buckets=buckets,
        location=f"{root}/{model['alias']}" if root is not None else "",
        comment=comment,
        column_comments=comments,
        properties={
            **(TABLE_PROPERTIES if form == "iceberg" else {}),
            **texts(places.get("tblproperties") or {}),
        },
        options=texts(places.get("options") or {}),
    )


def comments_of(name: str, model: Mapping[str, Any]) -> tuple[str | None, dict[str, str]]:
    """What `persist_docs` requests: the table's comment, or None, and those of its columns.

    Error: CONFIG_INVALID.
    """
    docs = model["config"].get("persist_docs") or {}
    if not isinstance(docs, Mapping):
        raise StreamSqlError(
            "CONFIG_INVALID",
            "`persist_docs` must be a mapping",
            given=repr(docs),
            allowed="{relation: true|false, columns: true|false}",
            place=Place(name),
        )
    columns = {
        column["name"]: column["description"]
        for column in (model.get("columns") or {}).values()
        if docs.get("columns") and column.get("description")
    }
    return model.get("description", "") if docs.get("relation") else None, columns


def constraints_of(name: TableName, model: Mapping[str, Any]) -> tuple[Constraint, ...]:
    """What the model's contract promises about its rows; nothing unless it is enforced."""
    contract = (model.get("config") or {}).get("contract") or {}
    if not contract.get("enforced"):
        return ()
    declared = [(item, None) for item in model.get("constraints") or ()]
    for column in (model.get("columns") or {}).values():
        declared += [(item, column["name"]) for item in column.get("constraints") or ()]
    found = []
    for item, column in declared:
        kind = str(getattr(item["type"], "value", item["type"]))
        columns = tuple(item.get("columns") or ()) or ((column,) if column else ())
        condition = expression(item["expression"], "check") if _has_check(item, kind) else ""
        if kind not in KINDS:
            logger.warning(f"{name}: a constraint of type {kind} is not enforced")
        elif not (condition if kind == "check" else columns):
            raise StreamSqlError(
                "CONFIG_INVALID",
                f"a {kind} constraint has no {'expression' if kind == 'check' else 'columns'}",
                given=str(dict(item)),
                place=Place(str(name)),
            )
        else:
            found.append(Constraint(kind, columns, condition, item.get("name") or ""))
    return tuple(found)


def _has_check(item: Mapping[str, Any], kind: str) -> bool:
    return kind == "check" and bool(item.get("expression"))


def is_atomic(name: str, config: Mapping[str, Any], spark_properties: Mapping[str, str]) -> bool:
    """Config `atomic`, else the profile's FLIP_OPTION, else true. Error: CONFIG_INVALID."""
    for key, value in (
        (ATOMIC, config.get(ATOMIC)),
        (FLIP_OPTION, spark_properties.get(FLIP_OPTION)),
    ):
        if value is None:
            continue
        if str(value).lower() not in ("true", "false"):
            raise StreamSqlError(
                "CONFIG_INVALID",
                f"`{key}` must be true or false",
                given=repr(value),
                place=Place(name),
            )
        return str(value).lower() == "true"
    return True


def check_grants(name: str, config: Mapping[str, Any]) -> None:
    """Refuse grants before anything is built. Error: GRANTS_UNSUPPORTED."""
    if config.get("grants"):
        raise StreamSqlError(
            "GRANTS_UNSUPPORTED",
            "the catalog does not support grants",
            given=f"grants: {dict(config['grants'])}",
            hint="remove `grants` from the config, and control access in the catalog's storage or "
            "server",
            place=Place(name),
        )


def _listed(value: Any) -> tuple[str, ...]:
    if value is None:
        return ()
    return (value,) if isinstance(value, str) else tuple(map(str, value))
