-- Views of one barrier agree: every flight is counted once by day, by month, by carrier and by region.
with counted as (
  select 'flights' as source, count(*) as flights from {{ source('flights_raw', 'flights') }}
  union all
  select 'carrier_day', sum(flights) from {{ ref('carrier_day') }}
  union all
  select 'carrier_month', sum(flights) from {{ ref('carrier_month') }}
  union all
  select 'carriers', sum(flights) from {{ ref('carriers') }}
)
select * from counted where flights <> (select max(flights) from counted)
union all
select 'cancelled and departed', c.n + t.n
from (select count(*) as n from {{ ref('cancellations') }}) c
cross join (select sum(departures) as n from {{ ref('airport_traffic') }}) t
where c.n + t.n <> (select max(flights) from counted)
