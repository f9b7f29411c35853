{{ config(
  incremental_strategy='append',
  meta={'watermark': '_judged_at', 'verdicts_of': ['placsp_deleted_entries']}
) }}
{{ quarantine('placsp_deleted_entries') }}
