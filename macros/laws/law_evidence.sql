{% macro law_evidence(record_type) %}
  {#- Law 7: every refused record has its dead letter under the contract that refused it, and every
  dead letter of a record has its record. -#}
  select
    'evidence' as law,
    '{{ record_type }}' as record_type,
    coalesce(refused._batch_id, letters.batch_id) as batch_id,
    coalesce(refused._record_id, letters.record_id) as offender
  from (
    select
      _record_id,
      _batch_id,
      _verdict_contract
    from {{ record_type }}_verdicts
    where size(failure_reasons) > 0
  ) as refused
  full join (
    select
      record_id,
      verdict_contract,
      max(batch_id) as batch_id
    from {{ ref('dead_letters') }}
    where record_type = '{{ record_type }}' and record_id is not null
    group by record_id, verdict_contract
  ) as letters
    on refused._record_id = letters.record_id and refused._verdict_contract = letters.verdict_contract
  left join {{ record_type }}_verdicts as judged on letters.record_id = judged._record_id
  where letters.record_id is null or judged._record_id is null
{% endmacro %}
