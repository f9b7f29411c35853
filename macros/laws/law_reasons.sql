{% macro law_reasons(record_type) %}
  {#- Law 3: a quarantined row has at least one known code, an accepted one has none, and no verdict
  is null. -#}
  select
    'reasons' as law,
    '{{ record_type }}' as record_type,
    _batch_id as batch_id,
    _record_id as offender
  from {{ record_type }}_verdicts
  where
    failure_reasons is null
    or warnings is null
    or size(array_except(
      concat(failure_reasons, warnings),
      (select collect_list(rule_code) from {{ ref('dim_rules') }} where record_type = '{{ record_type }}')
    )) > 0

  union all

  select
    'reasons' as law,
    '{{ record_type }}' as record_type,
    quarantined._batch_id as batch_id,
    quarantined._record_id as offender
  from {{ ref(record_type ~ '_quarantine') }} as quarantined
  left join {{ record_type }}_verdicts as verdicts on quarantined._record_id = verdicts._record_id
  where
    coalesce(size(quarantined.failure_reasons), 0) = 0
    or quarantined.reason is null
    or not (quarantined.failure_reasons <=> verdicts.failure_reasons)

  union all

  select
    'reasons' as law,
    '{{ record_type }}' as record_type,
    dispositions._batch_id as batch_id,
    dispositions._record_id as offender
  from {{ ref(record_type ~ '_dispositions') }} as dispositions
  inner join {{ record_type }}_verdicts as verdicts on dispositions._record_id = verdicts._record_id
  where not coalesce(size(verdicts.failure_reasons) = 0, false)
{% endmacro %}
