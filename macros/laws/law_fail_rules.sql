{% macro law_fail_rules(record_type) %}
  {#- Rules of severity `fail`: the record is quarantined, and the run exits non-zero for it as long as
  it is the newest pass that struck. -#}
  {% set codes = (contract(record_type).rules or []) | selectattr('severity', 'equalto', 'fail') | map(attribute='code') | list %}
  select
    'fail_rules' as law,
    '{{ record_type }}' as record_type,
    _batch_id as batch_id,
    _record_id as offender
  from {{ record_type }}_verdicts
  where
    {% if codes %}
    arrays_overlap(failure_reasons, array('{{ codes | join("', '") }}'))
    and _judged_at = (select max(_judged_at) from {{ record_type }}_verdicts)
    {% else %}
    false
    {% endif %}
{% endmacro %}
