-- A view over a view: the months come from the days.
select
  carrier,
  month(flight_date) as month,
  sum(flights) as flights,
  sum(landed) as landed,
  sum(arr_delay_minutes) as arr_delay_minutes,
  max(worst_arr_delay) as worst_arr_delay
from {{ ref('carrier_day') }}
group by carrier, month(flight_date)
