{{ config(incremental_strategy='append', meta={
  'watermark': '_judged_at',
  'verdicts_of': ['placsp_entries', 'placsp_deleted_entries', 'children_of_placsp_entries']
}) }}
{{ judge_children('placsp_entries') }}
