"""What the service publishes about itself is what it does, and is written down in docs/."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest
from packaging.version import Version
from pydantic import VERSION

from dbt_streamsql.meta import Job, TableVersion, open_store
from dbt_streamsql.meta.model.tokens import Tokens
from dbt_streamsql.meta.service import create_app
from tests.support import patience

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.meta_service import Server

WRITTEN = Path(__file__).parents[2] / "docs" / "openapi.json"
DOCUMENT = json.loads(WRITTEN.read_text())
PARTS = sorted({op["tags"][0] for path in DOCUMENT["paths"].values() for op in path.values()})
"""Each address belongs to one."""
EXAMPLES = 5
"""Random requests at each address, besides those at the limits that the document states."""


@pytest.fixture
def server(meta_server: Server, tmp_path: Path) -> Iterator[Server]:
    """A store with two committed barriers and an open one."""
    with meta_server.serving(f"sqlite:///{tmp_path}/meta.db") as store:
        fence = store.acquire()
        for table in ("lake.shop.totals", "lake.shop.other"):
            barrier = store.begin(fence, {"lake.shop.orders": 1}).id
            store.stage_job(fence, barrier, Job(table, "", "select 1"))
            store.processed(fence, TableVersion(barrier, table, mode="noop"))
            store.precommit(fence, barrier)
            store.commit(fence, barrier)
        store.begin(fence)
        yield meta_server


@pytest.mark.long
@pytest.mark.parametrize("part", PARTS)
def test_every_address_does_what_the_document_says(
    server: Server, tmp_path: Path, part: str
) -> None:
    command = [
        *(str(Path(sys.executable).with_name("schemathesis")), "run"),
        *(f"{server.url}/openapi.json", "-H", f"Authorization: Bearer {server.token}"),
        *("--include-tag", part),
        *("--phases", "examples,coverage,fuzzing", "--max-examples", str(EXAMPLES)),
        # JSON Schema takes 1.0 for an integer, and compares 64-bit numbers as floats: we do not.
        *("--exclude-checks", "positive_data_acceptance"),
        *("--seed", "1", "--no-color"),
    ]
    done = patience.run(command, cwd=tmp_path)
    print(done.stdout)
    assert done.returncode == 0


@pytest.mark.skipif(Version(VERSION) < Version("2.14"), reason="says less with an older Pydantic")
def test_the_written_document_is_the_published_one(server: Server, tmp_path: Path) -> None:
    published = httpx.get(f"{server.url}/openapi.json").json()
    store = open_store(f"sqlite:///{tmp_path}/other.db")
    assert create_app(store, Tokens([])).openapi() == published
    store.close()
    # To write it anew: `python scripts/openapi.py`.
    assert published == DOCUMENT
