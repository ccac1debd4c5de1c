select user_id, item_id, sum(amount) as total_amount
from {{ source('shopping_raw', 'shopping') }}
group by user_id, item_id
