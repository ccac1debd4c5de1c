{{ config(materialized='view', sink='customers', columns=['phone', 'consent', 'updated_at']) }}
select customer_id, phone, consent, updated_at
from {{ source('raw', 'support') }}
