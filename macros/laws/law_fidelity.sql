{% macro law_fidelity(record_type) %}
  {#- Law 9: where a text did not convert to its type, a code says so. -#}
  select
    'fidelity' as law,
    '{{ record_type }}' as record_type,
    _batch_id as batch_id,
    _record_id as offender
  from {{ record_type }}_verdicts
  where size(_misfits) > 0 and size(failure_reasons) + size(warnings) = 0
{% endmacro %}
