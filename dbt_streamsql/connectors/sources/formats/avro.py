"""Avro schemas from files, and records read with them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dbt_streamsql.connectors.options import Options
from dbt_streamsql.errors import Place, StreamSqlError
from dbt_streamsql.plan.algebra.schema import HIDDEN_PREFIX

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession
    from pyspark.sql.types import StructType

PLAIN, CONFLUENT = "plain", "confluent"
MARK = f"{HIDDEN_PREFIX}read"
"""Spark returns NULL in all columns for an unreadable record; a valid one may have that too."""
_HEADER = 5
"""Bytes before a datum in Confluent's wire format: a zero byte, and the schema ID."""


@dataclass(frozen=True)
class Schemas:
    """`columns` is the schema that the columns come from. `writers`: the schemas by their ID in
    Confluent's header; None: records have no header and are written with `columns`."""

    columns: str
    writers: Mapping[int, str] | None
    place: Place = field(default_factory=Place)

    def types(self, spark: SparkSession) -> StructType:
        """Error: CONFIG_INVALID, without Spark's Avro module or for a schema that it refuses."""
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException
        from pyspark.sql import functions as F
        from pyspark.sql.types import StructType

        try:
            none = self._datum(F.lit(None).cast("binary"), self.columns)
            found = spark.range(0).select(none.alias("datum")).schema[0].dataType
        except (PySparkException, Py4JError, TypeError) as error:
            raise StreamSqlError(
                "CONFIG_INVALID",
                "Spark cannot read Avro, or cannot use this schema",
                given=str(error).strip().splitlines()[0],
                hint="`connectors: [avro]` in the profile; a Spark Connect server needs "
                "spark-avro installed",
                place=self.place,
            ) from error
        assert isinstance(found, StructType)
        return StructType([each for each in found if each.name != MARK])

    def read(self, value: Column) -> tuple[Column, Column]:
        """The records as structs, and what is wrong with them. Unreadable ones have no `MARK`."""
        from pyspark.sql import functions as F

        if self.writers is None:
            return self._datum(value, self.columns), F.lit(None).cast("string")
        header = F.hex(F.substring(value, 1, _HEADER))
        datum = F.substring(value, _HEADER + 1, (1 << 31) - 1 - _HEADER)
        number = F.conv(F.substring(header, 3, 8), 16, 10).cast("bigint")
        row = F.lit(None)
        for known, schema in self.writers.items():
            row = F.when(number == known, self._datum(datum, schema)).otherwise(row)
        headless = (F.length(value) < _HEADER) | ~header.startswith("00")
        problem = F.when(headless, F.lit("it does not begin with Confluent's five bytes")).when(
            ~number.isin(*self.writers),
            F.concat(F.lit("schema "), number.cast("string"), F.lit(" is not in `schema_files`")),
        )
        return F.when(~headless, row), problem

    def _datum(self, value: Column, writer: str) -> Column:
        from pyspark.sql.avro.functions import from_avro

        options = {"mode": "PERMISSIVE", "avroSchema": _with_mark(self.columns)}
        return from_avro(value, writer, options)


def _with_mark(schema: str) -> str:
    """The schema with an added field that every readable record has."""
    found = json.loads(schema)
    mark = {"name": MARK, "type": "boolean", "default": True}
    return json.dumps({**found, "fields": [*found.get("fields", []), mark]})


def schemas_of(options: Options) -> Schemas:
    """From the options `schema_file`, `schema_files` and `wire_format`; records mistakes."""
    wire = options.choice("wire_format", (PLAIN, CONFLUENT), None)
    texts = {
        key: text_of(options, f"schema_files: {key}", path)
        for key, path in options.mapping("schema_files").items()
    }
    writers = {int(key): text for key, text in texts.items() if key.isdigit()}
    for key in sorted(set(texts) - set(map(str, writers))):
        options.wrong(f"`schema_files` has the key {key!r}, which is not the number of a schema")
    path = options.text("schema_file", None)
    columns = text_of(options, "schema_file", path) if path else ""
    if wire == PLAIN and texts:
        options.wrong("`schema_files` requires `wire_format: confluent`")
    elif (wire == CONFLUENT or texts) and not writers:
        options.wrong("`schema_files` is missing: the numbers of schemas and their files")
    elif not writers and not path:
        options.wrong("`schema_file` is missing: the path of a file with an Avro schema")
    newest = writers[max(writers)] if writers else ""
    return Schemas(columns or newest, writers or None, options.place)


def text_of(options: Options, key: str, path: Any) -> str:
    """The schema in a file."""
    try:
        text = Path(str(path)).expanduser().read_text(encoding="utf-8")
        found = json.loads(text)
    except OSError as error:
        options.wrong(f"`{key}` cannot be read: {error.strerror}: {path}")
        return ""
    except ValueError as error:
        options.wrong(f"`{key}` is not JSON: {error}: {path}")
        return ""
    if not isinstance(found, dict) or found.get("type") != "record":
        options.wrong(f"`{key}` is not the schema of a record: {path}")
    return text
