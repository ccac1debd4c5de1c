{{ config(materialized='table') }}
-- An ordinary dbt table: made anew by every run, published with everything else.
select a.faa, a.name, coalesce(r.region, 'Elsewhere') as region
from {{ source('flights_raw', 'airports') }} a
left join {{ ref('regions') }} r on r.tzone = a.tzone
