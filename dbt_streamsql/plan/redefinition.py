"""What becomes of the rows of a view whose definition is another one."""

from __future__ import annotations

from dataclasses import dataclass

METADATA = "metadata-only"
APPEND = "append a column"
COMPATIBLE = "compatible state"
SHADOW = "shadow rebuild"

FROM_STORED = (APPEND, COMPATIBLE)
"""The verdicts after which rows are made from stored ones."""

STORED = "stored"
"""The hole of `Redefinition.sql` for the rows of the old version; `t0`, `t1` … are those of the
tables that the new one reads, as the old one has read them."""


NOW = "now"
"""The hole for the time at which a barrier writes, in microseconds since 1970, as a BIGINT."""


@dataclass(frozen=True)
class Redefinition:
    """A verdict and why.

    METADATA: the stored rows are those of the new definition. APPEND and COMPATIBLE: they follow
    from the stored rows of the old one, by `sql`, which may read some tables. SHADOW: they are
    computed from the sources.
    """

    verdict: str
    reason: str
    sql: str = ""
