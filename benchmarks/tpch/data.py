"""TPC-H data: files of the generator, and Iceberg tables made from them.

The files are `tpchgen-cli`'s (PyPI, the generator of the specification in Rust), which knows every
scale factor. Statements that Spark and DuckDB both run read them as `generated_<table>`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

from benchmarks.tpch.changes import Refresh

TABLES = ("region", "nation", "supplier", "customer", "part", "partsupp", "orders", "lineitem")
ORDER_KEYS = {"orders": "o_orderkey", "lineitem": "l_orderkey"}
_MERGE_ON_READ = {f"write.{what}.mode": "merge-on-read" for what in ("delete", "update", "merge")}


def generator() -> str | None:
    """The program that writes the files; None when it is not installed."""
    beside = Path(sys.executable).parent
    return shutil.which("tpchgen-cli", path=os.pathsep.join([str(beside), os.environ["PATH"]]))


def generate(folder: Path, scale: float) -> Path:
    """A folder below `folder` with one parquet file a table; made when it is not there."""
    done = folder / f"sf{scale:g}"
    if not done.is_dir():
        program = generator()
        if program is None:
            raise FileNotFoundError("tpchgen-cli is not installed (pip install tpchgen-cli)")
        partial = folder / f"sf{scale:g}.partial"
        shutil.rmtree(partial, ignore_errors=True)
        subprocess.run(  # noqa: S603 - the generator, with our own arguments
            [program, "parquet", "-s", f"{scale:g}", "--quiet", f"--output-dir={partial}"],
            check=True,
        )
        partial.rename(done)
    return done


def register(spark: Any, files: Path) -> None:
    """Let Spark's session know the files, as temporary views."""
    for table in TABLES:
        spark.read.parquet(str(files / f"{table}.parquet")).createOrReplaceTempView(
            f"generated_{table}"
        )


def load(
    spark: Any, schema: str, refreshes: Collection[Refresh], tables: Iterable[str] = TABLES
) -> None:
    """Tables in `schema`, which exists, without the orders that will arrive later."""
    for table in tables:
        properties = {"format-version": "3", **(_MERGE_ON_READ if table in ORDER_KEYS else {})}
        listed = ", ".join(f"'{key}' = '{value}'" for key, value in properties.items())
        spark.sql(
            f"CREATE TABLE {schema}.{table} USING iceberg TBLPROPERTIES ({listed}) "
            f"AS {initial(table, *refreshes)}"
        )


def forget(spark: Any) -> None:
    """Drop the temporary views that the statements of changes read."""
    for table in TABLES:
        spark.catalog.dropTempView(f"generated_{table}")


def initial(table: str, *refreshes: Refresh) -> str:
    """The rows that a table has at first, in the words of Spark and DuckDB."""
    key = ORDER_KEYS.get(table)
    later = " OR ".join(f"({refresh.arriving(key)})" for refresh in refreshes) if key else ""
    return f"SELECT * FROM generated_{table}" + (f" WHERE NOT ({later})" if later else "")
