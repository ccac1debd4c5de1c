select
  id, item_name, description, initial_bid, reserve, ts, expires, seller, category, extra,
  auction, bidder, price, bid_ts, bid_extra
from (
  select
    a.*,
    b.auction,
    b.bidder,
    b.price,
    b.ts as bid_ts,
    b.extra as bid_extra,
    row_number() over (partition by a.id order by b.price desc, b.ts) as place
  from {nexmark}.auction a
  join {nexmark}.bid b on a.id = b.auction
  where b.ts between a.ts and a.expires
) as bids
where place = 1
