{{ config(materialized='ephemeral') }}
-- Flights that reached their destination; dbt pastes this into its readers as a CTE.
select flight_id, flight_date, carrier, origin, dest, arr_delay
from {{ source('flights_raw', 'flights') }}
where arr_delay is not null
