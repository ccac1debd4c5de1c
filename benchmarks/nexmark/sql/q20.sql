select
  b.auction, b.bidder, b.price, b.channel, b.url, b.ts, b.extra,
  a.item_name, a.description, a.initial_bid, a.reserve, a.ts as auction_ts, a.expires, a.seller,
  a.category, a.extra as auction_extra
from {nexmark}.bid b
join {nexmark}.auction a on b.auction = a.id
where a.category = 10
