"""The refresh functions of TPC-H, and updates of the other tables, as statements.

Spark and DuckDB run the same texts. RF1 inserts orders, with their lines, that the generator made
and that were held back at the load; RF2 deletes orders with their lines. Which ones is said by a
seeded hash of the key, in buckets of about equal size. Or the newest ones change: those
with the highest keys come, and those that were the newest before go.
"""

from __future__ import annotations

from dataclasses import dataclass

BUCKETS = 1000
ORDERS = 1_500_000
"""At scale 1."""
LAST_ORDER = 6_000_000
"""The highest key of an order at scale 1."""


@dataclass(frozen=True)
class Refresh:
    """The changes of `epochs` epochs.

    Orders are in `buckets`: in each epoch `orders` of them come and as many go, and in every third
    one `dimensions` of the customers, parts (with what suppliers ask for them) and suppliers
    change. `last`: the highest key of an order; the newest orders change (0: any do). `upto`: only
    orders up to this key change (0: whatever their key is).
    """

    epochs: int
    orders: int = 1
    dimensions: int = 0
    seed: int = 1
    last: int = 0
    upto: int = 0
    buckets: int = BUCKETS

    def __post_init__(self) -> None:
        needed = max(2 * self.orders, self.dimensions) * self.epochs
        if needed > self.buckets:
            raise ValueError(f"{needed} of {self.buckets} buckets: fewer epochs, or smaller ones")

    def arriving(self, key: str, epoch: int | None = None) -> str:
        """The condition for rows that come with RF1, in an epoch or in all."""
        if epoch is None:
            return self._orders(key, 0, self.epochs * self.orders)
        return self._orders(key, epoch * self.orders, (epoch + 1) * self.orders)

    def leaving(self, key: str, epoch: int) -> str:
        """The condition for rows that RF2 deletes in an epoch."""
        first = (self.epochs + epoch) * self.orders
        return self._orders(key, first, first + self.orders)

    def statements(self, schema: str, epoch: int) -> list[str]:
        """RF1, RF2 and the updates of one epoch, from 0."""
        done = []
        for table, key in (("orders", "o_orderkey"), ("lineitem", "l_orderkey")):
            done.append(
                f"INSERT INTO {schema}.{table} "
                f"SELECT * FROM generated_{table} WHERE {self.arriving(key, epoch)}"
            )
        for table, key in (("lineitem", "l_orderkey"), ("orders", "o_orderkey")):
            done.append(f"DELETE FROM {schema}.{table} WHERE {self.leaving(key, epoch)}")
        if self.dimensions and epoch % 3 == 2:
            first = epoch * self.dimensions
            for table, update in _UPDATES.items():
                key, _, changed = update.partition(":")
                where = self._among(key, first, first + self.dimensions)
                done.append(f"UPDATE {schema}.{table} SET {changed} WHERE {where}")
        return done

    def _orders(self, key: str, first: int, end: int) -> str:
        """Buckets of orders: by hash, or counted from the newest order on."""
        if not self.last:
            among = self._among(key, first, end)
            return f"{key} <= {self.upto} AND {among}" if self.upto else among
        above, upto = (self.last * (self.buckets - each) // self.buckets for each in (end, first))
        return f"{key} > {above} AND {key} <= {upto}"

    def _among(self, key: str, first: int, end: int) -> str:
        hashed = f"(({key} * 7919 + {self.seed * 104729}) % 1000003)"
        bucket = f"{hashed} * {hashed} % 999983 % {self.buckets}"
        return f"{bucket} >= {first} AND {bucket} < {end}"


# Rows enter and leave what the queries ask for: segments, nations, brands, sizes, prices.
_UPDATES = {
    "customer": """c_custkey:
        c_mktsegment = CASE c_mktsegment WHEN 'BUILDING' THEN 'MACHINERY' ELSE 'BUILDING' END,
        c_nationkey = (c_nationkey + 7) % 25,
        c_phone = concat(CAST(10 + (c_nationkey + 7) % 25 AS STRING), substring(c_phone, 3, 13)),
        c_acctbal = c_acctbal - 123.45""",
    "part": """p_partkey:
        p_brand = CASE p_brand WHEN 'Brand#12' THEN 'Brand#23' WHEN 'Brand#23' THEN 'Brand#34'
            WHEN 'Brand#34' THEN 'Brand#45' ELSE 'Brand#23' END,
        p_container = CASE p_container WHEN 'MED BOX' THEN 'SM BOX' ELSE 'MED BOX' END,
        p_type = CASE WHEN p_type LIKE 'PROMO%' THEN 'ECONOMY ANODIZED STEEL'
            WHEN p_type LIKE '%BRASS' THEN 'PROMO PLATED TIN' ELSE 'SMALL BURNISHED BRASS' END,
        p_name = CASE WHEN p_name LIKE 'forest%' THEN 'green lace'
            ELSE concat('forest ', p_name) END,
        p_size = p_size % 50 + 1""",
    "supplier": """s_suppkey:
        s_nationkey = (s_nationkey + 3) % 25,
        s_acctbal = s_acctbal + 10.01,
        s_comment = CASE WHEN s_comment LIKE '%Customer%Complaints%' THEN 'none'
            ELSE 'the Customer had some Complaints' END""",
    "partsupp": """ps_partkey:
        ps_availqty = (ps_availqty + 4321) % 9999 + 1,
        ps_supplycost = CASE WHEN ps_supplycost > 500 THEN ps_supplycost - 499.50
            ELSE ps_supplycost + 17.25 END""",
}
"""By table: its key, and what is assigned."""
