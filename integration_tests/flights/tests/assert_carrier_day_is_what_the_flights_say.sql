with expected as (
  select
    carrier, flight_date, count(*) as flights, count(arr_delay) as landed,
    sum(arr_delay) as arr_delay_minutes, avg(arr_delay) as avg_arr_delay,
    min(arr_delay) as best_arr_delay, max(arr_delay) as worst_arr_delay
  from {{ source('flights_raw', 'flights') }}
  group by carrier, flight_date
)
(select 'missing' as failure, * from (select * from expected except all select * from {{ ref('carrier_day') }}))
union all
(select 'not wanted' as failure, * from (select * from {{ ref('carrier_day') }} except all select * from expected))
