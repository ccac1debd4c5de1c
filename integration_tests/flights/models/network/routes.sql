-- Who flies where.
select distinct origin, dest, carrier
from {{ source('flights_raw', 'flights') }}
