{{ config(incremental_strategy='append') }}
{{ judge('orders') }}
