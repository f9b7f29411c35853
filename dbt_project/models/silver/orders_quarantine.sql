{{ config(incremental_strategy='append', meta={'verdicts_of': ['orders']}) }}
{{ quarantine('orders') }}
