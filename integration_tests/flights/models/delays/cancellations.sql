-- Flights that never left, over the staging view.
select flight_id, flight_date, carrier, origin, dest
from {{ ref('stg_flights') }}
where cancelled
