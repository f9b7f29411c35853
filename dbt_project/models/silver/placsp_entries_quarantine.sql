{{ config(incremental_strategy='append', meta={'verdicts_of': ['placsp_entries']}) }}
{{ quarantine('placsp_entries') }}
