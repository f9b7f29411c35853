{% macro judge(record_type) %}
  {#- Judge every record of a record type once, from the rules of its contract.

  One row per Bronze record and verdict: fields typed, `failure_reasons` (codes of severity
  quarantine, drop and fail) and `warnings`, both in contract order, and never null. Only records
  of batches that the current contract has not judged yet are read. -#}
  {% set terms = contract(record_type) %}
  {% set fields = terms.fields %}
  {% set progress = judged_progress(record_type) %}
with

bronze as (
  select *
  from {{ unpurged(record_type) }} as records
  {% if progress.after_batch %}
  where _batch_id > '{{ progress.after_batch }}'
  {% endif %}
),

typed as (
  select
    {% for column in lineage_columns() %}
    {{ column }},
    {% endfor %}
    {% for field in fields %}
    {% if field.type not in ('string', 'native') %}
    {{ field.from }} as raw_{{ field.name }},
    {% endif %}
    {{ typed(
      '(' ~ field.from ~ ')', field.type, field.format, field.decimal_sign or '.',
      field.thousands_mark or ''
    ) }} as {{ field.name }},
    {% endfor %}
    _corrupt_record
  from bronze
),

asked as (
  select
    *,
    {% for rule in terms.rules %}
    {{ rule_predicate(rule, fields) }} as _is_{{ rule.code | lower }},
    {% endfor %}
    filter(array(
      {% for field in fields if can_misfit(field.type) %}
      case
        when {{ misfit('raw_' ~ field.name, field.name, field.type) }} then {{ misfit_text(field) }}
      end{{ ',' if not loop.last }}
      {% endfor %}
    ), item -> item is not null) as _misfits
  from typed
),

judged as (
  select
    {% for column in lineage_columns() %}
    {{ column }},
    {% endfor %}
    {% for field in fields %}
    {{ field.name }},
    {% endfor %}
    _misfits,
    {% for output, severities in [
      ('failure_reasons', ['quarantine', 'drop', 'fail']), ('warnings', ['warn'])
    ] %}
    filter(array(
      {% set ns = namespace(stopped=[], codes=[]) %}
      {% for rule in terms.rules %}
        {% if rule.severity in severities %}
          {% set guard = ' and not (' ~ ns.stopped | join(' or ') ~ ')' if ns.stopped else '' %}
          {% do ns.codes.append(
            "case when _is_" ~ rule.code | lower ~ guard ~ " then '" ~ rule.code ~ "' end") %}
        {% endif %}
        {% if rule.stops %}{% do ns.stopped.append('_is_' ~ rule.code | lower) %}{% endif %}
      {% endfor %}
      {{ ns.codes | join(',\n      ') if ns.codes else 'cast(null as string)' }}
    ), item -> item is not null) as {{ output }},
    {% endfor %}
    '{{ verdict_contract(record_type) }}' as _verdict_contract,
    {{ progress.pass }} as _verdict_pass,
    {{ progress.judged_at }} as _judged_at
  from asked
)

select * from judged
{% endmacro %}


{% macro lineage_columns() %}
  {#- Columns of Bronze that go with a verdict: where the record is from, and what it has. -#}
  {{ return(['_record_id', '_dataset', '_source_file', '_file_sha256', '_position', '_batch_id',
    '_ingested_at', '_payload_sha256', '_read_contract', '_pipeline_version', '_supersedes',
    '_attempt', '_unparsed', '_parse_error']) }}
{% endmacro %}


{% macro rule_predicate(rule, fields) %}
  {#- A rule's fault as SQL that is never null: on_null says what a null means. -#}
  {%- if rule.misfit -%}
    {%- for name in rule.misfit -%}
      {%- set field = (fields | selectattr('name', 'equalto', name) | list)[0] -%}
      {{ ' or ' if not loop.first }}({{ misfit('raw_' ~ name, name, field.type) }})
    {%- endfor -%}
  {%- else -%}
    {{ total_predicate(rule) }}
  {%- endif -%}
{% endmacro %}


{% macro total_predicate(rule) %}
  {#- A rule's `when`, with what its null means. -#}
coalesce(
      (
        {{ rule.when }}
      ),
      {{ 'true' if rule.on_null == 'refuse' else 'false' }}
    )
{%- endmacro %}
