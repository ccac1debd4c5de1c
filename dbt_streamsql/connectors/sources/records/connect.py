"""JSON values by their Kafka Connect schemas: bytes, days and counts, as SQL text.

All of it is SQL: building so many expressions one by one takes Python seconds. A value that is
used more than once is bound as a lambda variable.
"""

from __future__ import annotations

from collections.abc import Iterable

from dbt_streamsql.connectors.sources.records.sql import let

DECIMAL = "org.apache.kafka.connect.data.Decimal"
VARIABLE = "io.debezium.data.VariableScaleDecimal"
BITS = "io.debezium.data.Bits"
DATES = ("io.debezium.time.Date", "org.apache.kafka.connect.data.Date")
MOMENTS = {
    "io.debezium.time.Timestamp": "epoch_ms",
    "org.apache.kafka.connect.data.Timestamp": "epoch_ms",
    "io.debezium.time.MicroTimestamp": "epoch_us",
    "io.debezium.time.NanoTimestamp": "epoch_ns",
}
HOURS = {
    "io.debezium.time.Time": "epoch_ms",
    "org.apache.kafka.connect.data.Time": "epoch_ms",
    "io.debezium.time.MicroTime": "epoch_us",
    "io.debezium.time.NanoTime": "epoch_ns",
}
"""Times of day, counted since midnight."""
FIELD = "struct<field:string,name:string,parameters:map<string,string>>"
"""The part of a field's schema that is read."""
_TIMES = ("date", "timestamp", "timestamp_ntz")
_DAY = 86_400_000_000
_WORD = 1 << 32
_LONGEST = 16
"""Maximum bytes of a decimal's unscaled number."""


def text(given: str, schema: str, is_number: str, kind: str) -> str:
    """SQL for the text of a value, for a column of type `kind`; NULL for a value that does not
    match the schema. The other arguments are SQL too: the text in the record, a `FIELD`, and
    whether the text is a number there."""
    if kind in ("binary", "boolean"):
        return given
    cases = []
    if kind in _TIMES or kind == "string":
        count = f"try_cast({given} AS BIGINT)"
        micros = (
            f"CASE WHEN f.name IN ({_names(DATES)}) THEN try_multiply({count}, {_DAY}L)"
            f" WHEN f.name IN ({_of_unit('epoch_ms')}) THEN try_multiply({count}, 1000L)"
            f" WHEN f.name IN ({_of_unit('epoch_us')}) THEN {count} ELSE"
            f" CAST(floor(CAST({count} AS DECIMAL(20,0)) / 1000) AS BIGINT) END"
        )
        start = "TIMESTAMP_NTZ'1970-01-01'"
        at = f"CAST(timestampadd(MICROSECOND, m, {start}) AS STRING)"
        zone = "Z" if kind == "timestamp" else ""
        inner = (
            f"CASE WHEN f.name IN ({_names(DATES)}) THEN left({at}, length({at}) - 9)"
            f" WHEN f.name IN ({_names(MOMENTS)}) THEN concat({at}, '{zone}')"
            f" WHEN m = {_DAY} THEN '24:00:00'"
            f" WHEN m BETWEEN 0 AND {_DAY - 1} THEN substring({at}, 12, 15) END"
        )
        known = [*DATES, *MOMENTS, *(HOURS if kind == "string" else ())]
        cases.append(f"WHEN f.name IN ({_names(known)}) THEN {let(micros, 'm', inner)}")
    if kind == "string":
        length = "try_cast(f.parameters['length'] AS INT)"
        bits = (
            f"CASE WHEN length(b) <= 16 AND {length} BETWEEN 1 AND 64 THEN"
            " lpad(conv(array_join(reverse(regexp_extract_all(b, '(..)', 1)), ''), 16, 2),"
            f" {length}, '0') END"
        )
        found = let(f"hex(try_to_binary({given}, 'base64'))", "b", bits)
        cases.append(f"WHEN f.name = '{BITS}' THEN {found}")
    if kind not in _TIMES:
        scale = "try_cast(f.parameters['scale'] AS INT)"
        inside = f"get_json_object({given}, '$.value')"
        own = f"try_cast(get_json_object({given}, '$.scale') AS INT)"
        cases.append(
            f"WHEN f.name = '{VARIABLE}' OR f.name = '{DECIMAL}' AND NOT {is_number} THEN "
            + decimal_text(
                f"if(f.name = '{VARIABLE}', {inside}, {given})",
                f"if(f.name = '{VARIABLE}', {own}, {scale})",
            )
        )
    described = let(schema, "f", f"CASE {' '.join(cases)} ELSE {given} END")
    return f"if({schema}.name IS NULL, {given}, {described})"


def decimal_text(base64: str, scale: str) -> str:
    """SQL for the decimal with these bytes as its unscaled number, most significant first; NULL
    for invalid base64, and for more than 38 digits."""
    after = "greatest(s, 0)"
    pointed = (
        f"concat(if(h RLIKE '^[89A-F]', '-', ''), left(w, length(w) - {after}),"
        f" repeat('0', greatest(-s, 0)), if(s > 0, concat('.', right(w, {after})), ''))"
    )
    padded = f"lpad(n, greatest(length(n), {after} + 1), '0')"
    found = let(_whole(), "n", let(padded, "w", pointed))
    fits = f"length(h) BETWEEN 2 AND {_LONGEST * 2} AND s BETWEEN -38 AND 38"
    number = f"hex(try_to_binary({base64}, 'base64'))"
    return let(number, "h", let(scale, "s", f"CASE WHEN {fits} THEN {found} END"))


def _whole() -> str:
    """The digits of `h`, a number in two's complement, without its sign."""
    negative = "h RLIKE '^[89A-F]'"
    wide = f"lpad(h, {_LONGEST * 2}, if({negative}, 'F', '0'))"
    whole = "CAST(0 AS DECIMAL(38,0))"
    for at in range(1, _LONGEST * 2, 8):
        word = f"CAST(conv(substring({wide}, {at}, 8), 16, 10) AS DECIMAL(10,0))"
        # For a negative number the complement, so that no step is greater than the number.
        word = f"abs({word} - if({negative}, {_WORD - 1}BD, 0BD))"
        wider = f"try_cast(try_multiply({whole}, {_WORD}BD) AS DECIMAL(38,0))"
        whole = f"try_cast(try_add({wider}, {word}) AS DECIMAL(38,0))"
    return f"CAST(try_cast(try_add({whole}, if({negative}, 1BD, 0BD)) AS DECIMAL(38,0)) AS STRING)"


def _names(names: Iterable[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)


def _of_unit(unit: str) -> str:
    return _names([name for name, one in {**MOMENTS, **HOURS}.items() if one == unit])
