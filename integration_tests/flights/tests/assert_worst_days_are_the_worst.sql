-- As many days are worse than a day as its place says, counted by a self-join instead of a rank.
select w.carrier, w.flight_date, w.place, count(o.flight_date) as worse_days
from {{ ref('worst_days') }} w
left join {{ ref('carrier_day') }} o
  on o.carrier = w.carrier
  and (o.arr_delay_minutes > w.arr_delay_minutes
       or (o.arr_delay_minutes = w.arr_delay_minutes and o.flight_date < w.flight_date))
group by w.carrier, w.flight_date, w.place
having count(o.flight_date) <> w.place - 1
