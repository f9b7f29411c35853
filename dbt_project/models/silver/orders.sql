{{ config(
  incremental_strategy='merge',
  unique_key='order_id',
  meta={'verdicts_of': ['orders']}
) }}
{% set done = done_until() %}
with

decisions as (
  select *
  from {{ ref('orders_dispositions') }}
  where
    disposition = 'current'
    and {{ is_after('_decided_at', done) }}
),

verdicts as (
  {{ latest_verdicts('orders') }}
),

current_orders as (
  select
    decisions._record_id as record_id,
    {% for field in contract('orders').fields %}
    verdicts.{{ field.name }},
    {% endfor %}
    verdicts.warnings,
    verdicts._source_file,
    verdicts._position,
    verdicts._batch_id,
    decisions._verdict_contract,
    decisions._decided_at
  from decisions
  inner join verdicts on decisions._record_id = verdicts._record_id
)

select * from current_orders
