{{ config(materialized='view', sink='customers', columns=['visits', 'address.country', 'consent']) }}
select visitor_id, visits, named_struct('country', country) as address, consent
from {{ source('raw', 'web') }}
