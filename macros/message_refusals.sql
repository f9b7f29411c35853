{% macro message_refusals() %}
  {#- Refused messages as the office counts them, with the rule that struck first: those refused at once, those
  given up, and those that break a rule of their target. No row where the tables are not there yet.

  Their datasets are their targets. `rules_of` is the record type under which dim_rules has the rule. -#}
  {% set parts = [
    "select cast(null as string) as dataset, cast(null as string) as _record_id, "
    ~ "cast(null as string) as rule_code, cast(null as timestamp) as _ingested_at, "
    ~ "cast(null as int) as _attempt where false"
  ] %}
  {% set targets = message_targets() %}
  {% if not execute or lake_has('bronze', 'messages') %}
    {% do parts.append(
      "select if(target in ('" ~ targets | join("', '") ~ "'), target, 'unknown') as dataset, "
      ~ "_record_id, error_type as rule_code, processed_timestamp as _ingested_at, _attempt "
      ~ "from " ~ ref('stg_messages') ~ " where stage is not null and not is_repeat") %}
  {% endif %}
  {% if not execute or lake_has('bronze', 'bad_data') %}
    {% do parts.append(
      "select target_dest as dataset, _record_id, regexp_extract(error, '^[A-Z_]+', 0) as rule_code, "
      ~ "processed_timestamp as _ingested_at, _attempt from " ~ ref('stg_bad_data')) %}
  {% endif %}
  {% for name, terms in targets.items() if terms.rules and lake_has('silver', name ~ '_quarantine') %}
    {% do parts.append(
      "select '" ~ name ~ "' as dataset, _record_id, element_at(failure_reasons, 1) as rule_code, "
      ~ "_processed_timestamp as _ingested_at, _attempt from silver." ~ name ~ "_quarantine") %}
  {% endfor %}
  select
    'messages' as record_type,
    dataset,
    _record_id as record_id,
    rule_code,
    _ingested_at,
    {{ state_after_attempts(3) }} as untouched_state,
    dataset as rules_of,
    case dataset
      {% for name, terms in targets.items() %}
      when '{{ name }}' then {{ sql_string(terms.owner) }}
      {% endfor %}
    end as owner
  from (
    {{ parts | join('\n    union all\n    ') }}
  ) as refused
{% endmacro %}
