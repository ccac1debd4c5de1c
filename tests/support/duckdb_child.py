"""A DuckDB of its own version that writes to an Iceberg REST catalog: one statement a line.

python duckdb_child.py URI      (its packages on PYTHONPATH)
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

import duckdb


def main(uri: str) -> None:
    database = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    for name in ("httpfs", "avro", "iceberg"):
        package = Path(importlib.import_module(f"duckdb_extension_{name}").__file__).parent
        database.execute(f"LOAD '{next(package.rglob('*.duckdb_extension'))}'")
    told = f"TYPE iceberg, ENDPOINT '{uri}', AUTHORIZATION_TYPE 'none'"
    database.execute(f"ATTACH 'rest' AS rest ({told})")
    for line in sys.stdin:
        try:
            database.execute(json.loads(line))
            said = None
        except duckdb.Error as error:
            said = str(error)
        print(json.dumps(said), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
