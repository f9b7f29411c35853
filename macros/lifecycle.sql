{#- The life of a refused record as SQL: what ingest/office/states.py says, for those who query marts. -#}

{% macro untouched_state(record_type) %}
  {#- The state of a row of a quarantine on which nobody has worked. -#}
  case
    when is_dropped then 'discarded'
    else {{ state_after_attempts(contract(record_type).max_attempts or 3) }}
  end
{%- endmacro %}


{% macro state_after_attempts(most) -%}
  {#- The state of a refused record on which nobody has worked, where it may be sent so often. -#}
  case when _attempt > 1 and _attempt >= {{ most }} then 'exhausted' else 'pending' end
{%- endmacro %}


{% macro state_after(last_event, untouched) %}
  {#- The state of a record after its newest event. -#}
  case
    when {{ last_event }} is null then {{ untouched }}
    when {{ last_event }} = 'reopened' then 'pending'
    else {{ last_event }}
  end
{%- endmacro %}
