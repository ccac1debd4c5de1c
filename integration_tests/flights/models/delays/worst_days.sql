-- The three worst days of each carrier: the carriers that a change touches are ranked again.
select carrier, flight_date, arr_delay_minutes, place
from (
  select
    carrier,
    flight_date,
    arr_delay_minutes,
    row_number() over (partition by carrier order by arr_delay_minutes desc, flight_date) as place
  from {{ ref('carrier_day') }}
  where arr_delay_minutes is not null
) ranked
where place <= 3
