-- An item has one price, so however much was bought, changed or given back, the average is that price.
-- Amounts of one barrier over prices of another would show another number. User 1 is the textbook's own.
select user_id, item_id, total_amount, total_price, avg_price
from {{ ref('avg_price') }}
where user_id <> 1 and avg_price <> 5 + item_id
