{% macro law_disposition(record_type) %}
  {#- Law 4: exactly one disposition per accepted record (that it has one is law 2's). Each but
  `current` names the record that caused it, which exists; `waiting` names none, because what it
  waits for is not there. One key has at most one current or withdrawn record. -#}
  select
    'disposition' as law,
    '{{ record_type }}' as record_type,
    dispositions._batch_id as batch_id,
    dispositions._record_id as offender
  from {{ ref(record_type ~ '_dispositions') }} as dispositions
  left join (
    {% for other in causes_of(record_type) %}
    {{ 'union all' if not loop.first }}
    select _record_id from {{ other }}_verdicts
    {% endfor %}
  ) as causes on dispositions.by_record_id = causes._record_id
  where
    dispositions.disposition not in ('current', 'superseded', 'duplicate', 'withdrawn', 'waiting')
    or dispositions.disposition is null
    or (dispositions.disposition in ('superseded', 'duplicate', 'withdrawn') and causes._record_id is null)
    or (dispositions.disposition in ('current', 'waiting') and dispositions.by_record_id is not null)

  union all

  select
    'disposition' as law,
    '{{ record_type }}' as record_type,
    max(_batch_id) as batch_id,
    max(_record_id) as offender
  from {{ ref(record_type ~ '_dispositions') }}
  group by {{ (contract(record_type).key or ['_record_id']) | join(', ') }}
  having count_if(disposition in ('current', 'withdrawn', 'waiting')) > 1
{% endmacro %}


{% macro causes_of(record_type) %}
  {#- The record types whose records can cause a disposition of this one. -#}
  {% set causes = [record_type] %}
  {% for other, terms in contracts().items() %}
    {% if other == record_type and terms.withdrawn_by %}{% do causes.append(terms.withdrawn_by.record_type) %}{% endif %}
    {% if terms.withdrawn_by and terms.withdrawn_by.record_type == record_type %}{% do causes.append(other) %}{% endif %}
  {% endfor %}
  {{ return(causes) }}
{% endmacro %}
