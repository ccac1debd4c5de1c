-- The newest state of each order. `_n` is the number of the event: the greater one is newer.
{{ config(
    materialized='streaming_table',
    key='id',
    sequence_by='_n',
    delete_when="status = 'cancelled'",
    leave_out=['_n'],
) }}
select id, customer, amount, status, _n from {{ source('web', 'order_events') }}
