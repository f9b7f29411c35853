{{ config(incremental_strategy='append') }}
{{ judge('placsp_entries') }}
