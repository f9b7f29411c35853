{% macro law_complement(record_type) %}
  {#- Law 2: every Bronze record has one newest verdict and stands in exactly one of accepted and
  quarantine; Silver shows what is accepted, and all that it should show. -#}
  {% set silver = var('record_types')[record_type] %}
  select
    'complement' as law,
    '{{ record_type }}' as record_type,
    max(batch_id) as batch_id,
    record_id as offender
  from (
    select _record_id as record_id, _batch_id as batch_id, 1 as bronze, 0 as judged, 0 as accepted, 0 as quarantined{% for _ in silver %}, 0 as shown_{{ loop.index }}, 0 as due_{{ loop.index }}{% endfor %}
    from {{ ref('stg_' ~ record_type) }}
    union all
    select _record_id, _batch_id, 0, 1, 0, 0{% for _ in silver %}, 0, 0{% endfor %}
    from {{ record_type }}_verdicts
    union all
    select _record_id, _batch_id, 0, 0, 1, 0{% for _ in silver %}, 0, case when disposition in ('{{ silver[_] | join("', '") }}') then 1 else 0 end{% endfor %}
    from {{ ref(record_type ~ '_dispositions') }}
    union all
    select _record_id, _batch_id, 0, 0, 0, 1{% for _ in silver %}, 0, 0{% endfor %}
    from {{ ref(record_type ~ '_quarantine') }}
    {% for table in silver %}
    {% set shown = loop.index %}
    union all
    select record_id, _batch_id, 0, 0, 0, 0{% for _ in silver %}, {{ 1 if loop.index == shown else 0 }}, 0{% endfor %}
    from {{ ref(table) }}
    {% endfor %}
  ) as places
  group by record_id
  having
    sum(bronze) <> 1 or sum(judged) <> 1 or sum(accepted) + sum(quarantined) <> 1
    {% for _ in silver %}
    or sum(shown_{{ loop.index }}) <> sum(due_{{ loop.index }})
    {% endfor %}
{% endmacro %}

