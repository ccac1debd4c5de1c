with marked as (
  select
    bidder,
    ts,
    coalesce(ts - lag(ts) over (partition by bidder order by ts) >= interval 10 seconds, true)
      as begins
  from {nexmark}.bid
),
numbered as (
  select
    bidder, ts, count(*) filter (where begins) over (partition by bidder order by ts) as session
  from marked
)
select bidder, count(*) as bid_count, min(ts) as starttime, max(ts) + interval 10 seconds as endtime
from numbered
group by bidder, session
