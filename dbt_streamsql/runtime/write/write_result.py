"""The outcome of writing a view's change."""

from __future__ import annotations

from dataclasses import dataclass

from dbt_streamsql.runtime.core.stored_rows import StoredRows
from dbt_streamsql.runtime.spark.scratch import TempRelation
from dbt_streamsql.storage.arrow_rows import TooManyBytesError


class Mismatch(Exception):
    """The view needs a full refresh, for a reason that shows only during the write."""

    def __init__(self, reason: str = "the stored rows were not as expected") -> None:
        super().__init__(reason)


class TooManyRowsError(Mismatch):
    """The change of a view has more than `most` signed rows."""

    def __init__(self, most: int) -> None:
        super().__init__(f"its change has more than {most:,} rows: recomputing is cheaper")
        self.most = most


class TooLongRowsError(Mismatch):
    """The rows of a view, or those that a comparison found, are too long for the driver."""

    def __init__(self, cause: TooManyBytesError) -> None:
        super().__init__(f"it cannot be compared with its query: {cause}")


@dataclass(frozen=True)
class Outcome:
    """Rows that the view gained and lost. `feed` is that change as signed visible rows, `file` the
    path of the file with the new rows if the driver wrote it, `stored` all rows if they are
    known."""

    inserted: int = 0
    deleted: int = 0
    feed: TempRelation | None = None
    file: str = ""
    stored: StoredRows | None = None

    @property
    def changed(self) -> bool:
        return bool(self.inserted or self.deleted)
