"""The queries q0 to q23 of Nexmark in Spark's SQL, and what DuckDB says instead where it must.

The texts in `sql/` say what those of the Flink suite say (q0 to q8 are the original ones). None is
left out. Different are:

- q6 has exactly ten rows in its average; it and q9, q18, q19 break ties by time, so that there is
  one answer.
- q10 gives the partition columns; the files are the table's.
- q12 groups by processing time. A query over a table knows none: it is when the row was written,
  the column `arrived`.
- q13 joins a table, `side_input`.
- q14 counts a letter with built-in functions instead of a user's.
- q21: Spark's `regexp_extract` gives '' where Flink's gives NULL.

In `sql/duckdb/` are windows and sessions by hand; DuckDB reads the other texts as they are, with
`MACRO`.
"""

from __future__ import annotations

from pathlib import Path

_FOLDER = Path(__file__).parent / "sql"
NAMES = tuple(f"q{number:02}" for number in range(24))
MACRO = """
CREATE MACRO date_format(ts, f) AS
CASE f WHEN 'yyyy-MM-dd' THEN strftime(ts, '%Y-%m-%d') WHEN 'HH:mm' THEN strftime(ts, '%H:%M') END
"""
"""What DuckDB must know to read Spark's texts."""


def text(name: str, schema: str) -> str:
    """A query for Spark over the tables of a schema."""
    return _read(_FOLDER / f"{name}.sql", schema)


def oracle(name: str, schema: str) -> str:
    """The same for DuckDB."""
    own = _FOLDER / "duckdb" / f"{name}.sql"
    return _read(own, schema) if own.is_file() else text(name, schema)


def _read(file: Path, schema: str) -> str:
    return file.read_text(encoding="utf-8").strip().format(nexmark=schema)
