{{ config(incremental_strategy='append', meta={'watermark': '_judged_at'}) }}
{{ judge_children('placsp_entries') }}
