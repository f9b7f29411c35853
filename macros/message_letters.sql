{% macro message_letters() %}
  {#- Messages that were refused, given up, or broke a rule of their target, as dead letters; no row where
  the tables are not there yet.

  What was written long before the newest letter of its kind is there already. A day is left for clocks that
  are set back. -#}
  {% set parts = [] %}
  {% set targets = message_targets() %}
  {% if not execute or lake_has('bronze', 'messages') %}
    {% do parts.append(refused_messages(targets)) %}
  {% endif %}
  {% if not execute or lake_has('bronze', 'bad_data') %}
    {% do parts.append(given_up_messages()) %}
  {% endif %}
  {% for name, terms in targets.items() if terms.rules and lake_has('silver', name ~ '_quarantine') %}
    {% do parts.append(refused_rows(name, terms)) %}
  {% endfor %}
  {% for part in parts %}
  {{ 'union all' if not loop.first }}
  select
    sha2(concat_ws('|', record_id, stage, verdict_contract, attempt), 256) as dead_letter_id,
    *
  from ({{ part }}) as part_{{ loop.index }}
  {% endfor %}
  {% if not parts %}
  select
    cast(null as string) as dead_letter_id,
    cast(null as string) as record_id,
    cast(null as string) as record_type,
    cast(null as string) as source_file,
    cast(null as string) as dataset,
    cast(null as string) as stage,
    cast(null as string) as error_type,
    cast(null as string) as error_message,
    cast(null as int) as position,
    cast(null as string) as business_key,
    cast(null as array<string>) as failure_reasons,
    cast(null as string) as verdict_contract,
    cast(null as string) as pipeline_version,
    cast(null as string) as batch_id,
    cast(null as timestamp) as _judged_at,
    cast(null as string) as payload,
    cast(null as int) as attempt
  where false
  {% endif %}
{% endmacro %}


{% macro refused_messages(targets) %}
  {#- Messages that were refused at once. A name that no target has is no dataset: anybody can make one up. -#}
  select
    _record_id as record_id,
    'messages' as record_type,
    _source_file as source_file,
    if(target in ('{{ targets | join("', '") }}'), target, 'unknown') as dataset,
    stage,
    error_type,
    concat(
      'messages, ', _source_file, {{ at_position() }}, ': ', error, '. It was refused at once, because no ',
      'target can be found for it. Correct it with \'lakehouse quarantine correct ', left(_record_id, 12),
      '\' and run \'lakehouse replay\'.'
    ) as error_message,
    -- A topic may have more records than an int holds. The text above has the number then.
    try_cast(_position as int) as position,
    key as business_key,
    array(error_type) as failure_reasons,
    cast(null as string) as verdict_contract,
    _pipeline_version as pipeline_version,
    cast(receipt as string) as batch_id,
    processed_timestamp as _judged_at,
    payload,
    _attempt as attempt
  from {{ ref('stg_messages') }}
  where
    stage is not null and not is_repeat
    and {{ is_about_new('processed_timestamp', "record_type = 'messages' and stage <> 'schema_migration'") }}
{% endmacro %}


{% macro given_up_messages() %}
  {#- Messages that did not fit their target for longer than they may be retried. -#}
  select
    _record_id as record_id,
    'messages' as record_type,
    _source_file as source_file,
    target_dest as dataset,
    'schema_migration' as stage,
    regexp_extract(error, '^[A-Z_]+', 0) as error_type,
    concat(
      'messages, ', _source_file, {{ at_position() }}, ': ', error, '. It was given up after ', retry_number,
      ' windows in which the schema of ', target_dest, ' could have changed. Correct it with \'lakehouse ',
      'quarantine correct ', left(_record_id, 12), '\', or give the target the column, and run \'lakehouse ',
      'replay\'.'
    ) as error_message,
    -- A topic may have more records than an int holds. The text above has the number then.
    try_cast(_position as int) as position,
    key as business_key,
    array(regexp_extract(error, '^[A-Z_]+', 0)) as failure_reasons,
    cast(null as string) as verdict_contract,
    _pipeline_version as pipeline_version,
    cast(null as string) as batch_id,
    insert_time as _judged_at,
    bad_data as payload,
    _attempt as attempt
  from {{ ref('stg_bad_data') }}
  where {{ is_about_new('insert_time', "record_type = 'messages' and stage = 'schema_migration'") }}
{% endmacro %}


{% macro refused_rows(name, terms) %}
  {#- Messages that fit their target and break one of its rules. -#}
  select
    _record_id as record_id,
    '{{ name }}' as record_type,
    _source_file as source_file,
    '{{ name }}' as dataset,
    case element_at(failure_reasons, 1)
      {% for rule in terms.rules %}
      when '{{ rule.code }}' then '{{ rule.stage }}'
      {% endfor %}
      else 'business_rule'
    end as stage,
    element_at(failure_reasons, 1) as error_type,
    concat(
      '{{ name }}, ', _source_file, {{ at_position() }}, ': ',
      case element_at(failure_reasons, 1)
        {% for rule in terms.rules %}
        when '{{ rule.code }}' then {{ sql_string(rule.code ~ ': ' ~ rule.why ~ ' ' ~ rule.fix) }}
        {% endfor %}
        else ''
      end
    ) as error_message,
    -- A topic may have more records than an int holds. The text above has the number then.
    try_cast(_position as int) as position,
    _key as business_key,
    failure_reasons,
    _verdict_contract as verdict_contract,
    _pipeline_version as pipeline_version,
    cast(null as string) as batch_id,
    detected_at as _judged_at,
    payload,
    _attempt as attempt
  from silver.{{ name }}_quarantine
  where {{ is_about_new('detected_at', "record_type = '" ~ name ~ "'") }}
{% endmacro %}


{% macro at_position() -%}
  {#- Where a message stands: a line of its file, or an offset of its partition. -#}
  if(_source_file like 'kafka:%', ' offset ', ' line '), _position
{%- endmacro %}


{% macro message_targets() %}
  {#- The contracts of the targets of messages by name, as they stand in their source YAML. -#}
  {% set found = {} %}
  {% if execute %}
    {% for node in graph.sources.values() | sort(attribute='name') %}
      {% if node.source_name == 'message_targets' and node.config.meta.target %}
        {% do found.update({node.name: node.config.meta.target}) %}
      {% endif %}
    {% endfor %}
  {% endif %}
  {{ return(found) }}
{% endmacro %}


{% macro lake_has(schema, table) %}
  {#- Whether a table that no model makes is there. -#}
  {% if not execute %}{{ return(false) }}{% endif %}
  {% set tables = run_query('show tables in ' ~ schema).columns[1].values() | list %}
  {{ return(table in tables) }}
{% endmacro %}


{% macro is_about_new(column, of_its_kind) %}
  {#- A condition that leaves out what is a day older than the newest dead letter of its kind. -#}
  {% if not (execute and is_incremental()) %}{{ return('true') }}{% endif %}
  {% set newest = run_query(
    "select date_format(max(_judged_at) - interval 1 day, 'yyyy-MM-dd HH:mm:ss.SSSSSS') from " ~ this
    ~ " where " ~ of_its_kind).rows[0][0] %}
  {{ return(column ~ " > timestamp'" ~ newest ~ "Z'" if newest else 'true') }}
{% endmacro %}
