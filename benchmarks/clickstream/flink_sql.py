"""The example's tables, views and sinks as Flink writes them.

Windows are groups by the number of their 10 seconds: a window of Flink's own gives its rows only
when a watermark has passed. Averages are of DOUBLE, as Spark's are.
"""

from __future__ import annotations

_SOURCES = {
    "persons": "id BIGINT, name STRING, city STRING, state STRING, ts BIGINT",
    "auctions": "id BIGINT, item STRING, seller BIGINT, category BIGINT, initial_bid BIGINT, "
    "ts BIGINT, expires BIGINT",
    "bids": "auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, ts BIGINT",
}
_TIME = "TO_TIMESTAMP_LTZ(ts, 3)"
_HOUR = f"EXTRACT(HOUR FROM CAST({_TIME} AS TIMESTAMP(3)))"

VIEWS = {
    "bids_in_euros": f"""
        SELECT auction, bidder, CAST(0.908 * price AS DECIMAL(23, 3)) AS price, {_TIME} AS ts
        FROM bids""",
    "selected_bids": f"""
        SELECT auction, price, {_TIME} AS ts FROM bids WHERE MOD(auction, 123) = 0""",
    "big_bids": f"""
        SELECT auction, bidder, price,
               CASE WHEN {_HOUR} BETWEEN 8 AND 18 THEN 'day'
                    WHEN {_HOUR} <= 6 OR {_HOUR} >= 20 THEN 'night'
                    ELSE 'other' END AS part_of_day,
               SPLIT_INDEX(url, '/', 3) AS folder, {_TIME} AS ts
        FROM bids WHERE price > 10000000""",
    "highest_bids": """
        SELECT ts / 10000 AS starts, MAX(price) AS price, COUNT(*) AS bids
        FROM bids GROUP BY ts / 10000""",
    "bids_of_items": """
        SELECT auction, ts / 10000 AS starts, COUNT(*) AS bids
        FROM bids GROUP BY auction, ts / 10000""",
    "channel_minutes": """
        SELECT channel, `minute`, COUNT(*) AS bids,
               COUNT(*) FILTER (WHERE price < 10000) AS small_bids,
               COUNT(*) FILTER (WHERE price >= 1000000) AS great_bids,
               SUM(price) AS total,
               CAST(TO_TIMESTAMP_LTZ(MAX(ts), 3) AS TIMESTAMP(3)) AS last_bid
        FROM (SELECT channel, price, ts,
                     CAST(TO_TIMESTAMP_LTZ(ts / 60000 * 60000, 3) AS TIMESTAMP(3)) AS `minute`
              FROM bids)
        GROUP BY channel, `minute`""",
    "local_items": """
        SELECT a.id, p.name, p.city, p.state
        FROM auctions a JOIN persons p ON a.seller = p.id
        WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')""",
    "new_sellers": """
        SELECT p.id, p.name, p.starts
        FROM (SELECT DISTINCT id, name, ts / 10000 AS starts FROM persons) p
        JOIN (SELECT DISTINCT seller, ts / 10000 AS starts FROM auctions) a
          ON p.id = a.seller AND p.starts = a.starts""",
    "winning_bids": """
        SELECT a.id, a.seller, a.category, MAX(b.price) AS price, COUNT(*) AS bids
        FROM auctions a JOIN bids b ON a.id = b.auction
        WHERE b.ts BETWEEN a.ts AND a.expires
        GROUP BY a.id, a.seller, a.category""",
    "category_prices": """
        SELECT category, AVG(CAST(price AS DOUBLE)) AS average, COUNT(*) AS auctions
        FROM winning_bids GROUP BY category""",
    "seller_revenue": """
        SELECT seller, SUM(price) AS revenue, COUNT(*) AS auctions
        FROM winning_bids GROUP BY seller""",
    "top_sellers": """
        SELECT s.seller, p.name, s.revenue
        FROM seller_revenue s JOIN persons p ON s.seller = p.id
        ORDER BY s.revenue DESC, s.seller LIMIT 10""",
}
"""Each after those that it reads."""

POSTGRES = {
    "channel_minutes": (
        "channel text, minute timestamp, bids bigint, small_bids bigint, great_bids bigint, "
        "total bigint, last_bid timestamp, PRIMARY KEY (channel, minute)"
    ),
    "category_prices": ("category bigint PRIMARY KEY, average double precision, auctions bigint"),
}
"""The tables that Flink's connector writes; it creates none."""
_SINKS = {
    "channel_minutes": "channel STRING, `minute` TIMESTAMP(3), bids BIGINT, small_bids BIGINT, "
    "great_bids BIGINT, total BIGINT, last_bid TIMESTAMP(3), "
    "PRIMARY KEY (channel, `minute`) NOT ENFORCED",
    "category_prices": "category BIGINT, average DOUBLE, auctions BIGINT, "
    "PRIMARY KEY (category) NOT ENFORCED",
}


def tables(broker: str, url: str, user: str, password: str) -> list[str]:
    """The statements that make sources, views and sinks."""
    found = [
        f"CREATE TABLE {topic} ({columns}) WITH ('connector' = 'kafka', 'topic' = '{topic}', "
        f"'properties.bootstrap.servers' = '{broker}', 'scan.startup.mode' = 'earliest-offset', "
        "'format' = 'json')"
        for topic, columns in _SOURCES.items()
    ]
    found += [f"CREATE TEMPORARY VIEW {name} AS {text}" for name, text in VIEWS.items()]
    found += [
        f"CREATE TABLE {name}_out ({columns}) WITH ('connector' = 'jdbc', 'url' = '{url}', "
        f"'table-name' = '{name}', 'username' = '{user}', 'password' = '{password}')"
        for name, columns in _SINKS.items()
    ]
    return found


def inserts() -> list[str]:
    """The statements that fill PostgreSQL."""
    return [f"INSERT INTO {name}_out SELECT * FROM {name}" for name in _SINKS]


def unread() -> list[str]:
    """The views whose rows nobody takes: they go to Flink's black hole."""
    return [name for name in VIEWS if name not in _SINKS]
