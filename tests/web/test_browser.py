"""The pages in a real headless Chromium: what is seen, keys, themes, rules of accessibility."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import expect

from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.meta import MetaStore, Retention, TableVersion, open_store
from dbt_streamsql.web import everything
from tests.support.histories import CLEAN, ORDERS, REPORT, REVENUE, SOURCES, TOP, Clock, Story, job
from tests.web.service import served

pytestmark = pytest.mark.processes
AXE = Path(__file__).parent / "vendor" / "axe.min.js"
PAGES = ("#/", "#/trends", "#/barriers", "#/barrier/12", f"#/table/{REVENUE}", f"#/table/{ORDERS}")


@dataclass
class Heard:
    """What the browser said and whom it asked while a test ran."""

    console: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)


@pytest.fixture
def heard() -> Heard:
    return Heard()


@pytest.fixture
def page(browser, heard: Heard) -> Iterator:
    """A page that fails its test when something is logged, or asked from another host."""
    context = browser.new_context(viewport={"width": 1280, "height": 860}, color_scheme="light")
    opened = context.new_page()
    opened.set_default_timeout(10_000)
    opened.on("console", lambda message: heard.console.append(f"{message.type}: {message.text}"))
    opened.on("pageerror", lambda error: heard.console.append(str(error)))
    opened.on("request", lambda request: heard.requests.append(request.url))
    yield opened
    context.close()
    # The server of a test may stop before its page is closed, which goes on asking.
    stopped = ("ERR_CONNECTION_REFUSED", "503 (Service Unavailable)")
    assert [line for line in heard.console if not any(word in line for word in stopped)] == []
    strangers = [url for url in heard.requests if not url.startswith("http://127.0.0.1:")]
    assert strangers == []


def show(page, address: str, at: str = "#/") -> None:
    page.goto("about:blank")
    page.goto(address + at)
    page.locator("main h1").wait_for()


def press_until(page, key: str, reached: str, most: int = 60) -> None:
    for _ in range(most):
        page.keyboard.press(key)
        if page.evaluate("selector => document.activeElement.matches(selector)", reached):
            return
    raise AssertionError(f"{key} does not lead to {reached}")


def contrast(page, selector: str) -> float:
    """WCAG's contrast of an element's text to the nearest background below it."""
    return page.evaluate(
        """selector => {
          const canvas = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
          const light = colour => {
            canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
            const [r, g, b] = [...canvas.getImageData(0, 0, 1, 1).data].map(v => v / 255)
              .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
            return 0.2126 * r + 0.7152 * g + 0.0722 * b;
          };
          const element = document.querySelector(selector);
          const style = getComputedStyle(element);
          const text = light(element instanceof SVGElement ? style.fill : style.color);
          const box = element.closest(".node")?.querySelector("rect");
          let below = box ? getComputedStyle(box).fill : null;
          for (let at = element; !below && at; at = at.parentElement) {
            const found = getComputedStyle(at).backgroundColor;
            if (found !== "rgba(0, 0, 0, 0)") below = found;
          }
          const ground = light(below);
          return (Math.max(text, ground) + 0.05) / (Math.min(text, ground) + 0.05);
        }""",
        selector,
    )


def test_the_graph_shows_every_table_and_edge_with_state_delay_and_rows(page, address) -> None:
    show(page, address)
    assert page.locator("a.node").count() == 8
    assert page.locator("g[data-edge]").count() == sum(map(len, SOURCES.values()))
    said = page.locator(f'a.node[data-key="node {REVENUE}"]').text_content()
    assert said is not None
    for part in (
        "shop.item_revenue",
        "current",
        "barrier 12",
        "+24 −2",
        "delay 60.3 s",
        "slowest job",
    ):
        assert part in said
    root = page.locator(f'a.node[data-key="node {ORDERS}"] text')
    assert root.all_text_contents() == ["raw.orders", "root"]
    assert "60.3 s, +24 −2" in page.locator(".edge text").all_text_contents()


def test_the_critical_path_is_told_and_highlighted(page, address) -> None:
    show(page, address)
    told = page.locator("#critical").inner_text()
    assert "clean 1.2 s → item_revenue 6.0 s → report 1.1 s" in told
    assert f"Slowest: {REVENUE}" in told
    lit = page.locator("g.edge.path[data-edge]")
    assert {e.get_attribute("data-edge") for e in lit.all()} == {
        f"{CLEAN} {REVENUE}",
        f"{REVENUE} {REPORT}",
    }


def test_keys_alone_lead_from_the_graph_to_a_table_and_back(page, address) -> None:
    show(page, address)
    press_until(page, "Tab", f'a.node[data-key="node {CLEAN}"]')
    seen = page.locator(f'a.node[data-key="node {CLEAN}"] rect')
    assert seen.evaluate("rect => parseFloat(getComputedStyle(rect).strokeWidth)") >= 4
    page.keyboard.press("Enter")
    page.locator("main h1", has_text=CLEAN).wait_for()
    assert page.evaluate("document.activeElement.id") == "main"
    assert page.locator("pre").first.inner_text().startswith("select id, sum(amount)")
    assert page.get_by_role("cell", name="decimal(12,2)").count() == 1
    press_until(page, "Tab", f'a[data-key="readers {REVENUE}"]')
    page.keyboard.press("Enter")
    page.locator("main h1", has_text=REVENUE).wait_for()
    page.go_back()
    page.locator("main h1", has_text=CLEAN).wait_for()


def test_the_first_key_offers_to_skip_the_navigation(page, address) -> None:
    show(page, address)
    page.keyboard.press("Tab")
    assert page.locator("a.skip").evaluate("link => link === document.activeElement")
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    assert page.evaluate("location.hash") == "#/"


def test_whatever_has_the_focus_shows_it(page, address) -> None:
    show(page, address)
    reached = set()
    for _ in range(40):
        page.keyboard.press("Tab")
        kind, visible = page.evaluate(
            """() => {
              const at = document.activeElement;
              const rect = at.querySelector && at.matches("a.node") && at.querySelector("rect");
              const style = getComputedStyle(at);
              return [at.tagName, rect ? getComputedStyle(rect).strokeWidth === "5px"
                : style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2];
            }"""
        )
        reached.add(kind)
        assert visible or kind == "BODY", kind
    assert {"A", "a", "BUTTON", "DIV"} <= reached


def test_trends_draw_every_change_of_a_table_and_tell_what_was_saved(page, address) -> None:
    show(page, address, "#/trends")
    row = page.locator("tr", has=page.locator(f'a[data-key="trend {REVENUE}"]'))
    charts = row.get_by_role("img")
    assert charts.count() == 3
    told = charts.nth(0).get_attribute("aria-label")
    assert told.startswith("Delay over 12 changes"), told
    assert charts.nth(2).locator("rect").count() == 12
    assert charts.nth(1).locator("rect.slow").count() == 1, "the first build, in full"


def test_a_barrier_is_drawn_as_a_timeline_of_its_jobs(page, address) -> None:
    show(page, address, "#/barriers")
    assert page.locator("tbody tr").count() == 12
    page.get_by_role("link", name="12", exact=True).click()
    page.locator("main h1", has_text="Barrier 12").wait_for()
    drawn = page.get_by_role("img", name="Timeline of barrier 12")
    wide = {
        rect.get_attribute("class"): float(rect.get_attribute("width") or 0)
        for rect in drawn.locator("rect:not(.wait)").all()
    }
    assert drawn.locator("rect:not(.wait)").count() == len(SOURCES)
    assert wide["bar slow"] == max(wide.values())
    assert "27.1 s" in page.get_by_role("row", name=re.compile(f"^{CLEAN} WRITTEN")).inner_text()


def test_the_plan_of_a_view_is_drawn_with_the_figures_that_are_known(
    page, address, with_plan: str
) -> None:
    show(page, address, f"#/table/{with_plan}")
    drawn = page.get_by_role("region", name="Plan as a graph")
    nodes = {
        (node.get_attribute("data-key") or "").removeprefix("plan "): node.text_content() or ""
        for node in drawn.locator(".node").all()
    }
    assert "shop.user_totals view +6 −5 rows, 0.8 s 4,321 rows, 98.8 KB" in nodes["view"]
    join = next(text for text in nodes.values() if "inner join" in text)
    assert "u.id = c.id AND c.amount > 3 +9 −8 rows, 0.8 s 4,321 rows, 98.8 KB" in join
    assert "keeps state for ever stored in __streamsql_state_1" in join
    group = next(text for text in nodes.values() if "group" in text)
    assert group.endswith("group sum by city keeps state for ever"), "it was not measured"
    assert drawn.locator("g[data-edge]").count() == len(nodes) - 1
    rows = page.get_by_role("region", name="Operators")
    assert rows.locator("tbody tr").count() == len(nodes)
    assert "upsert by (city)" in page.get_by_role("region", name="Plan", exact=True).inner_text()


def test_keys_go_through_the_plan_and_from_a_stored_operator_to_its_table(
    page, address, with_plan: str
) -> None:
    show(page, address, f"#/table/{with_plan}")
    press_until(page, "Tab", '.plan .node[data-key="plan view"]')
    named = page.evaluate("document.activeElement.getAttribute('aria-label')")
    assert named.startswith("shop.user_totals, view, +6 −5 rows")
    width = (
        "parseFloat(getComputedStyle(document.activeElement.querySelector('rect')).strokeWidth)"
    )
    assert page.evaluate(width) == 5
    press_until(page, "Tab", ".plan a.node.op-stored")
    page.keyboard.press("Enter")
    page.locator("main h1", has_text="__streamsql_state_1").wait_for()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_plan_breaks_no_rule_of_accessibility_and_can_be_read(
    page, address, with_plan: str, scheme: str
) -> None:
    page.emulate_media(color_scheme=scheme)
    show(page, address, f"#/table/{with_plan}")
    check_rules(page)
    for selector in (".plan .title", ".plan text.soft", ".plan a.op-scan .state-text"):
        assert contrast(page, selector) >= 4.5, selector
    for family in ("view", "stored", "scan"):
        assert contrast(page, f".plan .op-{family} .state-text") >= 4.5, family


def test_dark_follows_the_system_and_a_switch_that_is_remembered(page, address) -> None:
    background = "getComputedStyle(document.body).backgroundColor"
    show(page, address)
    light = page.evaluate(background)
    page.emulate_media(color_scheme="dark")
    dark = page.evaluate(background)
    assert dark != light
    switch = page.get_by_role("button", name="Dark")
    expect(switch).to_have_attribute("aria-pressed", "true")
    switch.click()
    assert page.evaluate(background) == light
    page.reload()
    page.locator("main h1").wait_for()
    assert page.evaluate(background) == light
    assert switch.get_attribute("aria-pressed") == "false"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_have_enough_contrast(page, address, scheme: str) -> None:
    page.emulate_media(color_scheme=scheme)
    show(page, address)
    looked_at = ["h1", "#state", "nav a", "button", "caption", "td a", "p.brand", ".slow a"]
    looked_at += [
        f".legend .{state}" for state in ("root", "current", "behind", "staged", "unbuilt")
    ]
    looked_at += [
        "a.node .title",
        "a.node text.soft",
        "a.node .slow-text",
        "a.node.current .state-text",
    ]
    looked_at += ["a.node.root .state-text", ".edge text"]
    for selector in looked_at:
        assert contrast(page, selector) >= 4.5, selector


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("at", PAGES)
def test_no_rule_of_accessibility_is_broken_seriously(
    page, address, at: str, scheme: str, width: int
) -> None:
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": width, "height": 860})
    show(page, address, at)
    check_rules(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= width, "wider than the window"


def check_rules(page) -> None:
    """No rule of axe is broken seriously."""
    # The policy of the page lets no script in but its own: axe comes by the debugger.
    page.evaluate(AXE.read_text(encoding="utf-8"))
    found = page.evaluate("axe.run()")
    assert len(found["passes"]) > 10
    serious = [
        (rule["id"], [node["html"] for node in rule["nodes"]])
        for rule in found["violations"]
        if rule["impact"] in ("serious", "critical")
    ]
    assert serious == []


def test_a_new_barrier_appears_by_itself_and_the_focus_stays(
    page, store: MetaStore, clock: Clock
) -> None:
    store.keep_from(fence := store.acquire(), Retention(barriers=12))
    store.forget(fence, Retention())
    store.release(fence)
    with served(store) as url:
        show(page, f"{url}/ui/")
        page.locator(f'a.node[data-key="node {TOP}"]').focus()
        story = Story(store, clock)
        story.latest = dict(store.latest_all())
        story.roots = {table: number or 0 for table, number in store.inputs(12).items()}
        story.change(ORDERS)
        story.barrier()
        page.locator("#state", has_text="Barrier 13").wait_for()
        page.locator("a.node", has_text="barrier 13").first.wait_for()
        assert page.evaluate("document.activeElement.dataset.key") == f"node {TOP}"
        page.get_by_role("button", name="Auto-refresh").click()
        asked = page.evaluate("performance.getEntriesByType('resource').length")
        page.wait_for_timeout(5500)
        assert page.evaluate("performance.getEntriesByType('resource').length") == asked


def test_while_nothing_changes_nothing_is_asked_and_a_change_is_heard(
    page, store: MetaStore, clock: Clock, heard: Heard
) -> None:
    with served(store) as url:
        show(page, f"{url}/ui/")
        with page.expect_response("**/api/status"):
            pass  # the first event
        page.wait_for_timeout(1000)
        asked = len(heard.requests)
        page.wait_for_timeout(6000)
        assert len(heard.requests) == asked
        fence = store.acquire()
        store.begin(fence, {})
        page.locator("#state", has_text="barrier 13 in OPEN").wait_for()
        asked = len(heard.requests)
        page.get_by_role("button", name="Auto-refresh").click()
        store.abort(fence, 13)
        store.release(fence)
        page.wait_for_timeout(2000)
        assert len(heard.requests) == asked
        assert "barrier 13 in OPEN" in page.locator("#state").inner_text()
        page.get_by_role("button", name="Auto-refresh").click()
        page.locator("#state").filter(has_not_text="barrier 13").wait_for()


def test_where_events_cannot_be_had_the_page_asks_by_itself(
    page, store: MetaStore, heard: Heard
) -> None:
    page.route("**/ui/api/events", lambda route: route.fulfill(status=503, body="{}"))
    with served(store) as url:
        show(page, f"{url}/ui/")
        fence = store.acquire()
        store.begin(fence, {})
        page.locator("#state", has_text="barrier 13 in OPEN").wait_for()
        store.release(fence)
    assert all("503" in line for line in heard.console), heard.console
    assert sum(url.endswith("/events") for url in heard.requests) == 1
    heard.console.clear()


class Answers:
    """What answers every query of a page, and runs none."""

    def __call__(self, sql, barrier, sees):
        if "secret" in sql:
            raise StreamSqlError("TABLE_MISSING", "the barrier has no such table", given="secret")
        return {
            "barrier": barrier or 12,
            "columns": [("city <b>", "string"), ("n", "bigint")],
            "rows": [("<img src=x>", "7"), (None, "8")],
            "more": True,
            "seconds": 0.25,
        }


def test_a_query_shows_rows_and_the_barrier_that_they_are_of(
    page, store: MetaStore, heard: Heard
) -> None:
    with served(store, ask=Answers()) as url:
        show(page, f"{url}/ui/", "#/query")
        page.get_by_label("One SELECT over tables").fill("select city, n from t")
        page.keyboard.press("Control+Enter")
        page.get_by_text("The first 2 rows, as of barrier 12, in 0.3 s.").wait_for()
        rows = page.get_by_role("region", name="Rows")
        assert rows.get_by_role("columnheader").all_inner_texts() == [
            "city <b> string",
            "n bigint",
        ]
        cells = rows.get_by_role("cell").all_inner_texts()
        assert cells == ["<img src=x>", "7", "NULL", "8"]
        check_rules(page)
        page.get_by_label("At barrier").fill("7")
        page.get_by_role("button", name="Run").click()
        page.get_by_text("as of barrier 7,").wait_for()
        # What is typed stays when something changes, and when one comes back.
        fence = store.acquire()
        store.begin(fence, {})
        page.locator("#state", has_text="barrier 13 in OPEN").wait_for()
        typed = page.get_by_label("One SELECT over tables")
        assert typed.input_value() == "select city, n from t"
        store.release(fence)
        page.get_by_role("link", name="Barriers").click()
        page.locator("main h1", has_text="Barriers").wait_for()
        page.go_back()
        assert typed.input_value() == "select city, n from t"
        typed.fill("select * from secret")
        page.get_by_role("button", name="Run").click()
        page.get_by_role("alert").filter(has_text="no such table").wait_for()
        assert "Given: secret" in page.locator(".refused").inner_text()
    assert all("400" in line for line in heard.console), heard.console
    heard.console.clear()


def test_where_queries_are_off_the_page_says_how_to_turn_them_on(page, address) -> None:
    show(page, address, "#/query")
    assert "streamsql meta serve --queries" in page.locator("main").inner_text()
    assert page.locator("main form").count() == 0
    check_rules(page)


def test_names_and_queries_stay_text_whatever_they_hold(page, tmp_path: Path) -> None:
    evil = "lake.s.<img src=x onerror=document.title='gone'>\"'&"
    sql = "select '</pre><script>document.title=\"gone\"</script>' as `<b>`"
    store = open_store(f"sqlite:///{tmp_path}/evil.db")
    fence = store.acquire()
    number = store.begin(fence, {"lake.raw.<script>alert(1)</script>": 1}, {}).id
    store.stage_job(fence, number, job(evil, ("lake.raw.<script>alert(1)</script>",), sql))
    version = TableVersion(number, evil, created=True, started_at=1.0, reason="<i>because</i>")
    store.processed(fence, version)
    store.precommit(fence, number)
    store.written(fence, number, evil)
    store.commit(fence, number)
    with served(store) as url:
        for at in ("#/", "#/barriers", "#/barrier/1"):
            show(page, f"{url}/ui/", at)
            assert page.locator("main img, main script, main b, main i").count() == 0
        show(page, f"{url}/ui/")
        page.locator("a.node.current").click()
        page.locator("pre").wait_for()
        assert page.locator("main h1").inner_text() == evil
        assert page.locator("pre").inner_text() == sql
        assert "<i>because</i>" in page.locator("main").inner_text()
        assert page.locator("main img, main script, main b, main i").count() == 0
        assert "gone" not in page.title().split("·")[-1]
    store.close()


def test_the_policy_stops_a_script_that_got_in_all_the_same(page, address, heard: Heard) -> None:
    show(page, address)
    page.evaluate(
        """() => {
          const script = document.createElement("script");
          script.textContent = "document.title = 'gone'";
          document.body.append(script);
        }"""
    )
    assert page.title() == "Topology · streamsql"
    assert any("Content Security Policy" in line for line in heard.console)
    heard.console.clear()


def test_a_token_is_asked_for_once(page, store: MetaStore, heard: Heard) -> None:
    with served(store, lambda token: everything if token == "of-this-test" else None) as url:  # noqa: S105
        show(page, f"{url}/ui/", "#/barriers")
        assert page.locator("main h1").inner_text() == "Log in"
        page.keyboard.type("wrong")
        page.keyboard.press("Enter")
        page.get_by_role("alert").filter(has_text="not known").wait_for()
        page.keyboard.type("of-this-test")
        page.keyboard.press("Enter")
        page.locator("main h1", has_text="Barriers").wait_for()
        assert page.evaluate("document.cookie") == ""
        page.reload()
        page.locator("main h1", has_text="Barriers").wait_for()
        page.get_by_role("button", name="Log out").click()
        page.locator("main h1", has_text="Log in").wait_for()
    refused = [line for line in heard.console if "401" in line]
    assert refused == heard.console
    heard.console.clear()


def test_a_link_with_a_code_signs_in_and_leaves_no_code_in_the_address(
    page, store: MetaStore, heard: Heard
) -> None:
    token = "of-this-test"  # noqa: S105 - made up
    with served(store, lambda given: everything if given == token else None) as url:
        asking = {"Authorization": f"Bearer {token}"}
        code = httpx.post(f"{url}/ui/link", headers=asking, trust_env=False).json()["code"]
        page.goto(f"{url}/ui/#code={code}")
        page.locator("main h1", has_text="Topology").wait_for()
        assert page.url == f"{url}/ui/#/"
        page.get_by_role("button", name="Log out").click()
        page.locator("main h1", has_text="Log in").wait_for()
        page.goto("about:blank")
        page.goto(f"{url}/ui/#code={code}")
        page.get_by_role("alert").filter(has_text="has been used").wait_for()
        page.locator("main h1", has_text="Log in").wait_for()
    assert all("401" in line for line in heard.console), heard.console
    heard.console.clear()


def test_an_empty_store_and_an_unknown_table_are_told_in_words(
    page, tmp_path: Path, heard: Heard
) -> None:
    store = open_store(f"sqlite:///{tmp_path}/empty.db")
    with served(store) as url:
        show(page, f"{url}/ui/")
        assert "No view is defined" in page.locator("main").inner_text()
        show(page, f"{url}/ui/", "#/barriers")
        page.goto(f"{url}/ui/#/table/lake.s.none")
        page.get_by_role("alert").filter(has_text="The table or barrier does not exist").wait_for()
    store.close()
    assert all("404" in line for line in heard.console)
    heard.console.clear()


@pytest.mark.spark
def test_the_pages_show_what_a_real_engine_did(page, engine, spark, schema: str) -> None:
    at = f"lake.{schema}"
    spark.sql(f"CREATE TABLE {at}.orders AS SELECT 1 AS id, 10 AS amount")
    query = f"SELECT id, sum(amount) AS amount FROM {at}.orders GROUP BY id"
    engine.create_materialized_view(f"{at}.totals", query)
    spark.sql(f"INSERT INTO {at}.orders VALUES (2, 5), (1, 1)")
    report = engine.advance()
    with served(engine.store) as url:
        show(page, f"{url}/ui/")
        node = page.locator(f'a.node[data-key="node {at}.totals"]')
        told = node.text_content() or ""
        assert f"barrier {report.barrier}, incremental +2 −1" in told
        assert "delay " in told
        heads = page.get_by_role("columnheader").all_inner_texts()
        cells = page.locator("tr", has=page.locator(f'a[data-key="row {at}.totals"]')).locator(
            "th, td"
        )
        in_full = cells.all_inner_texts()[heads.index("In full")]
        assert float(in_full.removesuffix(" s")) > 0
        node.click()
        page.get_by_role("heading", name="Plan", exact=True).wait_for()
        columns = page.get_by_role("region", name="Columns")
        assert f"{at}.orders.amount (aggregation)" in columns.inner_text()
        text = page.get_by_role("region", name="Plan", exact=True).inner_text()
        assert "upsert by (id)" in text
        plan = page.get_by_role("region", name="Plan as a graph")
        scan = plan.locator("a.node", has_text=f"{schema}.orders")
        assert "2 rows changed" in (scan.text_content() or "")
        view = plan.locator(".node", has_text=f"{schema}.totals").text_content() or ""
        assert "+2 −1 rows" in view
        assert "2 rows, " in view
        page.locator(f'a[data-key="version {report.barrier}"]').click()
        page.get_by_role("img", name=f"Timeline of barrier {report.barrier}").wait_for()


@pytest.mark.spark
def test_the_page_of_a_view_that_forgets_shows_its_ttls_and_since_when_it_is_approximate(
    page, engine, spark, schema: str
) -> None:
    at = f"lake.{schema}"
    spark.sql(f"CREATE TABLE {at}.seen (id INT) TBLPROPERTIES ('format-version' = '3')")
    spark.sql(f"INSERT INTO {at}.seen VALUES (1)")
    query = f"SELECT id, count(*) AS n FROM {at}.seen GROUP BY id"
    engine.create_materialized_view(f"{at}.counted", query, state_ttl="1 s")
    time.sleep(1.5)
    spark.sql(f"INSERT INTO {at}.seen VALUES (1)")
    report = engine.advance()
    with served(engine.store) as url:
        show(page, f"{url}/ui/", f"#/table/{at}.counted")
        page.get_by_text(
            f"since barrier {report.barrier}: some of its state has expired"
        ).wait_for()
        assert (
            "1 second by default"
            in page.get_by_role("region", name="Plan", exact=True).inner_text()
        )
