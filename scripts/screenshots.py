"""Write the pictures of docs/images: the pages over a warehouse that really ran.

    python scripts/screenshots.py [FOLDER]

A shop of three roots and five views is built with the engine and given some changes, in FOLDER (a
temporary one; an existing warehouse is shown as it is). Needs Java and Chromium; some minutes.
"""

from __future__ import annotations

import socket
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from itertools import product
from pathlib import Path

import uvicorn
from fastapi import FastAPI
from get_chromium import ensure
from playwright.sync_api import sync_playwright

from dbt_streamsql import Engine, web
from dbt_streamsql.engine.reads.limited_queries import LimitedQueries
from dbt_streamsql.meta import MetaStore, open_store

IMAGES = Path(__file__).resolve().parent.parent / "docs" / "images"
WIDE, NARROW = 1280, 390
PAGES = {
    "topology": ("#/", 540),
    "barrier": ("#/barrier/{newest}", 760),
    "barriers": ("#/barriers", 480),
    "trends": ("#/trends", 520),
    "table": ("#/table/lake.shop.item_revenue", 1500),
    "query": ("#/query", 520),
}
"""By the name of the picture: the page, and the height of a wide one."""

NARROW_HEIGHT = 844
QUERY = "SELECT city, orders\nFROM lake.shop.top_cities\nORDER BY orders DESC LIMIT 5"
ROOTS = {
    "orders": (
        "SELECT id, id % 5000 AS user_id, id % 800 AS item_id, 1 + id % 4 AS n FROM range(4000000)"
    ),
    "users": "SELECT id, concat('city ', id % 40) AS city FROM range(5000)",
    "items": "SELECT id, 10 + id % 90 AS price FROM range(800)",
}
VIEWS = {
    "clean": "SELECT id, user_id, item_id, n FROM lake.raw.orders WHERE n > 0",
    "user_totals": (
        "SELECT u.city, c.user_id, count(*) AS orders, sum(c.n) AS pieces\n"
        "FROM lake.shop.clean c JOIN lake.raw.users u ON u.id = c.user_id\n"
        "GROUP BY u.city, c.user_id"
    ),
    "item_revenue": (
        "SELECT i.id AS item_id, sum(c.n * i.price) AS revenue, max(c.n) AS most\n"
        "FROM lake.shop.clean c JOIN lake.raw.items i ON i.id = c.item_id\nGROUP BY i.id"
    ),
    "top_cities": "SELECT city, sum(orders) AS orders FROM lake.shop.user_totals GROUP BY city",
    "summary": (
        "SELECT (SELECT sum(revenue) FROM lake.shop.item_revenue) AS revenue,\n"
        "       count(*) AS users FROM lake.shop.user_totals"
    ),
}
CHANGES = (
    "INSERT INTO lake.raw.orders SELECT 5000000 + id, id % 5000, id % 800, 2 FROM range(300)",
    "UPDATE lake.raw.items SET price = price + 1 WHERE id < 5",
    "DELETE FROM lake.raw.orders WHERE id BETWEEN 100 AND 130",
    "UPDATE lake.raw.users SET city = 'city 1' WHERE id = 77",
    "INSERT INTO lake.raw.orders SELECT 6000000 + id, 7, id % 800, 1 FROM range(50)",
)


def play(warehouse: Path) -> None:
    """Build the shop and let its roots change, a few seconds before each barrier."""
    with_engine = Engine.open(warehouse)
    for schema in ("raw", "shop"):
        with_engine.spark.sql(f"CREATE NAMESPACE IF NOT EXISTS lake.{schema}")
    for name, query in ROOTS.items():
        with_engine.spark.sql(f"CREATE TABLE lake.raw.{name} AS {query}")
    for name, query in VIEWS.items():
        with_engine.create_materialized_view(f"lake.shop.{name}", query)
    for change in CHANGES:
        with_engine.spark.sql(change)
        time.sleep(2)
        with_engine.advance()
    with_engine.close()


@contextmanager
def served(store: MetaStore, queries: LimitedQueries) -> Iterator[str]:
    """The address of the pages."""
    app = FastAPI()
    router = web.router(
        store,
        stopping=lambda: server.should_exit,
        ask=lambda sql, barrier, sees: asdict(queries.ask(sql, barrier, sees)),
    )
    app.include_router(router)
    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        while not server.started:
            time.sleep(0.05)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/ui/"
    finally:
        server.should_exit = True
        thread.join()


def shoot(store: MetaStore, engine: Engine) -> None:
    """Every page in light and dark, wide and as on a telephone."""
    IMAGES.mkdir(parents=True, exist_ok=True)
    queries = LimitedQueries(store, lambda: engine, "lake")
    # The first query of a Spark is slow.
    queries.ask(QUERY, None, web.everything)
    with served(store, queries) as url, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=ensure(), args=["--no-sandbox"])
        for name, scheme, width in product(PAGES, ("light", "dark"), (WIDE, NARROW)):
            at, height = PAGES[name]
            view = {"width": width, "height": height if width == WIDE else NARROW_HEIGHT}
            page = browser.new_page(viewport=view, color_scheme=scheme)
            page.goto(url + at.format(newest=store.last_committed()))
            page.locator("main h1").wait_for()
            if name == "query":
                page.get_by_label("One SELECT").fill(QUERY)
                page.get_by_role("button", name="Run").click()
                page.get_by_role("region", name="Rows").wait_for()
            narrow = "" if width == WIDE else "-narrow"
            page.screenshot(path=IMAGES / f"{name}-{scheme}{narrow}.png")
            page.close()
        browser.close()


def main() -> None:
    """Play the shop unless the folder has a store, then take the pictures."""
    folder = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="streamsql-shop-")
    warehouse = Path(folder).resolve()
    store_file = warehouse / "streamsql.db"
    if not store_file.is_file():
        play(warehouse)
    store = open_store(f"sqlite:///{store_file}")
    engine = Engine.open(warehouse)
    shoot(store, engine)
    engine.close()
    store.close()
    print(f"pictures in docs/images; the warehouse is {warehouse}")


if __name__ == "__main__":
    main()
