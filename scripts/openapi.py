"""Write docs/openapi.json: what `/openapi.json` of `streamsql meta serve` publishes."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from dbt_streamsql.meta import open_store
from dbt_streamsql.meta.model.tokens import Tokens
from dbt_streamsql.meta.service import create_app

FILE = Path(__file__).parents[1] / "docs" / "openapi.json"


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = open_store(f"sqlite:///{folder}/meta.db")
        document = create_app(store, Tokens([])).openapi()
        store.close()
    FILE.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
