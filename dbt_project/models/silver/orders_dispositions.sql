{{ config(
  incremental_strategy='merge',
  unique_key='_record_id',
  meta={'verdicts_of': ['orders']}
) }}
{{ dispositions('orders') }}
