"""What happens to the rows of a view whose definition changes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dbt_streamsql.plan.compiled import CompiledPlan

METADATA = "metadata-only"
APPEND = "append a column"
COMPATIBLE = "compatible state"
SHADOW = "shadow rebuild"

FROM_STORED = (APPEND, COMPATIBLE)
"""The verdicts that derive rows from the stored ones."""

STORED = "stored"
"""The hole of `Redefinition.sql` for the rows of the old version; `t0`, `t1` … are those of the
tables that the new version reads, as the old one has read them."""


NOW = "now"
"""The hole for the write time of a barrier, in microseconds since 1970, as a BIGINT."""


@dataclass(frozen=True)
class Redefinition:
    """A verdict and its reason.

    METADATA: the stored rows are those of the new definition; where that reads tables which begin
    at this barrier, `earlier` is the plan that brings the rows here once more. APPEND and
    COMPATIBLE: they follow from the stored rows of the old one, by `sql`, which may read some
    tables. SHADOW: they are recomputed from the sources.
    """

    verdict: str
    reason: str
    sql: str = ""
    earlier: CompiledPlan | None = None
