{{ config(
    materialized='partial_update',
    key='customer_id',
    sequence_by={'updated_at': ['phone']},
    merge={'consent': 'bool_or'},
) }}
{{ branch(ref('customers_crm')) }}
{{ branch(ref('customers_web'), key='visitor_id') }}
{{ branch(ref('customers_orders')) }}
{{ branch(ref('customers_support')) }}
