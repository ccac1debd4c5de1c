-- Per cent of the flights that landed more than 15 minutes late, per airport; exact decimals.
select
  dest as airport,
  count(*) as landed,
  sum(case when arr_delay > 15 then 1 else 0 end) as late,
  cast(100.0 * sum(case when arr_delay > 15 then 1 else 0 end) / count(*) as decimal(5, 2)) as late_percent
from {{ ref('landed') }}
group by dest
