{{ config(materialized='view', sink='customers', columns=['name', 'address.city', 'phone', 'updated_at']) }}
select customer_id, name, named_struct('city', city) as address, phone, updated_at
from {{ source('raw', 'crm') }}
