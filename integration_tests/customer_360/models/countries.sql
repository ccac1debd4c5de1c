select address.country, count(*) as customers, sum(orders) as orders, sum(spent) as spent
from {{ ref('customers') }}
group by address.country
