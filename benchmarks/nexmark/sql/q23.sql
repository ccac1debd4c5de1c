select
  b.bidder, b.price, b.channel, b.url, b.extra as bid_extra,
  p.id as person_id, p.name, p.email, p.credit_card, p.city, p.state, p.extra as person_extra,
  a.item_name, a.description, a.initial_bid, a.reserve, a.ts as auction_ts, a.expires, a.seller,
  a.category, a.extra as auction_extra
from {nexmark}.bid b
join {nexmark}.person p on p.id = b.bidder
join {nexmark}.auction a on a.seller = b.bidder
