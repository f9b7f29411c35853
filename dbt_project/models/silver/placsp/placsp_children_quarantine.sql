{{ config(incremental_strategy='append', meta={
  'watermark': '_judged_at',
  'verdicts_of': ['placsp_entries', 'placsp_deleted_entries', 'children_of_placsp_entries']
}) }}
{{ children_quarantine('placsp_entries') }}
