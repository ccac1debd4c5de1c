{{ config(
    target={'connector': 'postgres', 'options': {'table': 'category_prices'}},
    key='category',
) }}
select category, average, auctions from {{ ref('category_prices') }}
