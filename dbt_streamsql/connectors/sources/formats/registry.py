"""The formats of records by name."""

from __future__ import annotations

from collections.abc import Sequence

from dbt_streamsql.connectors.options import Options
from dbt_streamsql.connectors.sources.formats import avro
from dbt_streamsql.connectors.sources.formats.debezium import debezium_of
from dbt_streamsql.connectors.sources.formats.decoding import (
    Avro,
    Csv,
    Format,
    Json,
    Text,
    csv_options,
    declared_of,
)


def format_of(options: Options, known: Sequence[str]) -> Format:
    """The format that a source declares, with its options; mistakes are recorded there."""
    name = str(options.format or "")
    if name not in known:
        options.wrong(
            f"`format` is {name!r}, not one of {', '.join(known)}"
            if name
            else f"`format` is missing: one of {', '.join(known)}"
        )
    given = declared_of(options, name)
    if name == "raw":
        return Text(dict(options.columns).get("value", "string"))
    if name == "text":
        return Text()
    if name == "avro":
        return Avro(avro.schemas_of(options), given)
    if name == "csv":
        return Csv(given, csv_options(options))
    return debezium_of(options, given) if name == "debezium" else Json(given)
