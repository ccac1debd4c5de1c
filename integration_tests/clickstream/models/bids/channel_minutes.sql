select
  channel,
  date_trunc('minute', ts) as minute,
  count(*) as bids,
  count(*) filter (where price < 10000) as small_bids,
  count(*) filter (where price >= 1000000) as great_bids,
  sum(price) as total,
  max(ts) as last_bid
from {{ ref('bids') }}
group by channel, date_trunc('minute', ts)
