{{ config(incremental_strategy='append', meta={'watermark': '_judged_at'}) }}
{{ children_quarantine('placsp_entries') }}
