"""Sizes as written in a config: `1000000`, `500 MB`, `20 GB`, `1 GiB`."""

from __future__ import annotations

from pydantic import ByteSize, TypeAdapter, ValidationError

from dbt_streamsql.errors import StreamSqlError

_SIZE = TypeAdapter(ByteSize)


def bytes_of(value: object, key: str) -> int:
    """A number is in bytes; a text has units. Error: CONFIG_INVALID.

    >>> bytes_of("20 GB", "state_budget")
    20000000000
    """
    try:
        if isinstance(value, bool):
            raise TypeError
        found = int(_SIZE.validate_python(value))
    except (TypeError, ValidationError):
        found = -1
    if found < 0:
        raise StreamSqlError(
            "CONFIG_INVALID",
            f"`{key}` is not a size",
            given=repr(value),
            allowed="a number of bytes, or text such as 500 MB, 20 GB, 1 GiB",
        )
    return found


def as_text(size: int) -> str:
    """A number of bytes for people.

    >>> as_text(20_000_000_000)
    '20.0GB'
    """
    return ByteSize(size).human_readable(decimal=True)
