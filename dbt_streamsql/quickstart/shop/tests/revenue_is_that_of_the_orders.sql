-- Both tables are read at one barrier, so they agree while the runner is at work.
select r.revenue, o.revenue as expected
from {{ ref('revenue') }} r
cross join (select sum(amount) as revenue from {{ ref('orders') }}) o
where r.revenue is distinct from o.revenue
