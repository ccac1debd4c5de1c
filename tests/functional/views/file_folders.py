"""Tables over folders of files that others write, and what these do to them."""

from __future__ import annotations

import os
import time
import uuid
from pathlib import Path
from typing import Any

COLUMNS = "k BIGINT, v BIGINT, name STRING"
ODD = (
    "a b",
    "100%25 of %",
    "ü",
    "a+b&c",
    "it's",
    "[x]{y}",
    'q"?#',
    "日",
    "e\u0301 \U0001f600",
    "~.=",
)
"""Names of files that have to be written otherwise in a URI, or in SQL."""

_AGED = 3600
"""Seconds: a file that is older than some is settled."""


class Folder:
    """A table of one format over a folder. `random` chooses rows, names and times."""

    def __init__(self, spark: Any, kind: str, place: Path, random: Any) -> None:
        self.spark, self.kind, self.random = spark, kind, random
        self.beside, self.folder = place / "beside", place / f"the {kind} files"
        self.folder.mkdir(parents=True)
        self.name = f"spark_catalog.default.t_{uuid.uuid4().hex[:8]}"
        self.clock = time.time() - _AGED
        self.past = self.clock - _AGED
        self.numbers = iter(range(1_000_000))
        spark.sql(f"CREATE TABLE {self.name} ({COLUMNS}) USING {kind} LOCATION '{self.folder}'")

    def drop(self) -> None:
        self.spark.sql(f"DROP TABLE IF EXISTS {self.name}")

    def files(self) -> list[Path]:
        return sorted(path for path in self.folder.iterdir() if path.name[0] not in "._")

    # -- files come --------------------------------------------------------------------------

    def insert(self) -> None:
        """A statement of Spark, which writes one file or two."""
        before = set(self.files())
        self._insert("INTO", self.random.randint(1, 6))
        self._age(set(self.files()) - before)

    def put(self) -> Path:
        """A file with a name as people give them."""
        came = self._write(f"{next(self.numbers)} {self.random.choice(ODD)}")
        self._age([came])
        return came

    def put_late(self) -> None:
        """Two files, the older of which is seen first by nobody: its time is an earlier one."""
        late = self._write(f"late {next(self.numbers)}")
        at = self.clock - self.random.choice([0.001, 0.5, 3])
        os.utime(late, (at, at))
        self.put()

    def put_many_old(self) -> None:
        """Files that were moved here with the times that they had."""
        self.past -= 100
        for at in range(3):
            moved = self._write(f"old {next(self.numbers)}")
            os.utime(moved, (self.past + at,) * 2)

    # -- files go ----------------------------------------------------------------------------

    def remove(self) -> Path:
        found = self.random.choice(self.files())
        found.unlink()
        # The sums of Hadoop's own writer.
        (self.folder / f".{found.name}.crc").unlink(missing_ok=True)
        return found

    def rewrite(self) -> None:
        """In place, at a later time."""
        found = self.remove()
        self._age([self._write(found.name.removesuffix(f".{self.kind}"))])

    def overwrite(self) -> None:
        self._insert("OVERWRITE", 4)
        self._age(self.files())

    # -- inside ------------------------------------------------------------------------------

    def _age(self, files: Any) -> None:
        """Times that go on, some of them in whole seconds and some equal."""
        for file in sorted(files):
            self.clock += self.random.choice([0, 0.01, 1, 7])
            self.clock = float(int(self.clock)) if self.random.random() < 0.3 else self.clock
            os.utime(file, (self.clock,) * 2)

    def _insert(self, how: str, count: int) -> None:
        rows = self._frame(self._rows(count))
        text = f"INSERT {how} {self.name} SELECT /*+ REPARTITION(2) */ * FROM {{rows}}"
        self.spark.sql(text, rows=rows)
        # What Spark puts beside them is as old as they are: a list of all that is there may count.
        for other in set(self.folder.iterdir()) - set(self.files()):
            os.utime(other, (self.clock,) * 2)

    def _rows(self, count: int) -> list[tuple[Any, ...]]:
        draw = self.random
        return [
            (
                draw.randrange(12),
                draw.choice([None, draw.randrange(6)]),
                draw.choice([None, "", "ü", "b c", "d,e"]),
            )
            for _ in range(count)
        ]

    def _frame(self, rows: list[tuple[Any, ...]]) -> Any:
        return self.spark.createDataFrame(rows, COLUMNS)

    def _write(self, name: str) -> Path:
        out = self.beside / uuid.uuid4().hex
        frame = self._frame(self._rows(self.random.randint(1, 4)))
        frame.coalesce(1).write.format(self.kind).save(str(out))
        (written,) = (file for file in out.iterdir() if file.name.startswith("part-"))
        return written.rename(self.folder / f"{name}.{self.kind}")
