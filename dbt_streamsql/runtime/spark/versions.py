"""Which versions of Spark a session may have: those that are too old are refused, and those that
are not tested are named, once."""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING

from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.runtime.spark.pinned_jars import ICEBERG

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_OLDEST = (4, 0)
_named: set[str] = set()
log = logging.getLogger("dbt_streamsql")


def check(session: SparkSession) -> None:
    """Error: CONNECTION when the session's Spark is too old."""
    version = session.version
    found = re.match(r"(\d+)\.(\d+)", version)
    if found is None:
        return
    minor = f"{found[1]}.{found[2]}"
    if (int(found[1]), int(found[2])) < _OLDEST:
        raise StreamSqlError(
            "CONNECTION",
            "this Spark is too old",
            given=f"Spark {version}",
            allowed=f"Spark {', '.join(ICEBERG)}",
            hint="dbt-streamsql uses SQL and calls that Spark 4.0 introduced; use a newer server",
        )
    if minor not in ICEBERG and minor not in _named:
        _named.add(minor)
        log.warning(
            "Spark %s is not tested with dbt-streamsql; these are: %s", version, ", ".join(ICEBERG)
        )
