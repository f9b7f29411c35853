{{ config(
  incremental_strategy='append',
  meta={'watermark': '_judged_at', 'verdicts_of': ['placsp_entries']}
) }}
{{ quarantine('placsp_entries') }}
