select user_id, item_id, sum(price) as total_price
from {{ source('shopping_raw', 'shopping') }}
group by user_id, item_id
