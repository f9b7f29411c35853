{{ config(
  incremental_strategy='append',
  meta={'watermark': '_judged_at', 'verdicts_of': ['orders']}
) }}
{{ quarantine('orders') }}
