{{ config(incremental_strategy='append', meta={'verdicts_of': ['placsp_deleted_entries']}) }}
{{ quarantine('placsp_deleted_entries') }}
