{{ config(
  materialized='incremental',
  incremental_strategy='append',
  partition_by='dataset',
  full_refresh=false,
  tblproperties={'delta.appendOnly': 'true', 'delta.dataSkippingStatsColumns': 'dead_letter_id,record_type,batch_id,_judged_at'}
) }}
{{ dead_letters() }}
