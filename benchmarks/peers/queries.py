"""The queries of the comparison, as each system must write them.

Spark's text is that of the Nexmark suite in `benchmarks/nexmark/sql`. Flink's says the same:
integers are averaged as DOUBLE, as Spark does, and the windows of q08 are groups by the window's
start, because a window of Flink's own gives its rows only when a watermark has passed.
"""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.nexmark import queries as nexmark

NAMES = ("q01", "q02", "q03", "q04", "q08", "q17", "q18")
DEFAULT = ("q01", "q03", "q04", "q08", "q17", "q18")
ABOUT = {
    "q01": "every bid, its price converted",
    "q02": "some of the bids",
    "q03": "auctions of a category joined with persons of some states",
    "q04": "average of the highest bids, by category",
    "q08": "persons that opened an auction in the same window of 10 seconds",
    "q17": "ten figures of the bids, by auction and day",
    "q18": "the last bid of each bidder on each auction",
}
READS = {
    "q01": ("bid",),
    "q02": ("bid",),
    "q03": ("person", "auction"),
    "q04": ("auction", "bid"),
    "q08": ("person", "auction"),
    "q17": ("bid",),
    "q18": ("bid",),
}
"""The tables that a query reads; a system is given no other."""
ROW_BY_ROW = ("q01", "q02")
"""Their rows are never taken back: a streaming table of Spark's pipelines can hold them."""


def spark(name: str, schema: str = "") -> str:
    """A query for Spark over the tables of a schema, or over views without one."""
    text = nexmark.text(name, schema or "nexmark")
    return text if schema else text.replace("nexmark.", "")


_WINDOW = "TIMESTAMPADD(SECOND, -MOD(EXTRACT(SECOND FROM ts), 10), FLOOR(ts TO SECOND))"
_OWN_FLINK = {
    "q04": """
select category, avg(cast(final_price as double)) as average
from (
  select a.id, a.category, max(b.price) as final_price
  from auction a
  join bid b on a.id = b.auction
  where b.ts between a.ts and a.expires
  group by a.id, a.category
)
group by category""",
    "q08": f"""
select p.id, p.name, p.starttime
from (select distinct id, name, {_WINDOW} as starttime from person) p
join (select distinct seller, {_WINDOW} as starttime from auction) a
  on p.id = a.seller and p.starttime = a.starttime""",
    "q17": """
select
  auction,
  date_format(ts, 'yyyy-MM-dd') as `day`,
  count(*) as total_bids,
  count(*) filter (where price < 10000) as rank1_bids,
  count(*) filter (where price >= 10000 and price < 1000000) as rank2_bids,
  count(*) filter (where price >= 1000000) as rank3_bids,
  min(price) as min_price,
  max(price) as max_price,
  avg(cast(price as double)) as avg_price,
  sum(price) as sum_price
from bid
group by auction, date_format(ts, 'yyyy-MM-dd')""",
}


def flink(name: str) -> str:
    """The same for Flink."""
    return _OWN_FLINK.get(name, "").strip() or spark(name)


@dataclass(frozen=True)
class Incremental:
    """A model of dbt-spark: `materialized='incremental', incremental_strategy='merge'`.

    `first` is its query when there is no table yet, `later` when there is; `{this}` is the table,
    `{at}` the schema of the sources. Without a `key` rows are only inserted. A table may have a
    column more than the query, by which the next run knows what is new.
    """

    key: tuple[str, ...]
    first: str
    later: str


def _q01() -> Incremental:
    text = nexmark.text("q01", "{at}")
    return Incremental((), text, f"{text} where ts > (select max(ts) from {{this}})")


def _q02() -> Incremental:
    text = nexmark.text("q02", "{at}").replace("auction, price", "auction, price, ts")
    return Incremental((), text, f"{text} and ts > (select max(ts) from {{this}})")


def _q03() -> Incremental:
    text = nexmark.text("q03", "{at}")
    return Incremental(("id",), text, f"{text} and a.id > (select max(id) from {{this}})")


def _q08() -> Incremental:
    text = nexmark.text("q08", "{at}")
    # The window in which the last run ended may have got more.
    recent = "where ts >= (select max(starttime) from {this})"
    later = text.replace("{at}.person", f"{{at}}.person {recent}")
    later = later.replace("{at}.auction", f"{{at}}.auction {recent}")
    return Incremental(("id", "starttime"), text, later)


def _q17() -> Incremental:
    select = nexmark.text("q17", "{at}")
    first = select.replace(
        "sum(price) as sum_price", "sum(price) as sum_price, max(ts) as last_ts"
    )
    new = first.replace("{at}.bid", "{at}.bid where ts > (select max(last_ts) from {this})")
    sums = ", ".join(
        f"sum({column}) as {column}"
        for column in ("total_bids", "rank1_bids", "rank2_bids", "rank3_bids")
    )
    later = f"""
with fresh as ({new}),
both_of_them as (
  select * from fresh
  union all
  select t.* from {{this}} t left semi join fresh f on t.auction = f.auction and t.day = f.day
)
select auction, day, {sums}, min(min_price) as min_price, max(max_price) as max_price,
  sum(sum_price) / sum(total_bids) as avg_price, sum(sum_price) as sum_price,
  max(last_ts) as last_ts
from both_of_them group by auction, day"""
    return Incremental(("auction", "day"), first, later)


def _q18() -> Incremental:
    text = nexmark.text("q18", "{at}")
    later = text.replace("{at}.bid", "{at}.bid where ts > (select max(ts) from {this})")
    return Incremental(("bidder", "auction"), text, later)


INCREMENTAL = {
    "q01": _q01(),
    "q02": _q02(),
    "q03": _q03(),
    "q08": _q08(),
    "q17": _q17(),
    "q18": _q18(),
}
"""Models whose merge gives the query's rows, as long as events only arrive, and in order."""
NO_MERGE = {
    "q04": "an average of maxima: a merge would need a second table that keeps the maxima",
}
