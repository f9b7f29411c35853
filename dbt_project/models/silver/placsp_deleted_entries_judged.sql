{{ config(incremental_strategy='append') }}
{{ judge('placsp_deleted_entries') }}
