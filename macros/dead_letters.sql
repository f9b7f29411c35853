{% macro dead_letters() %}
  {#- Refused records of every stage as dead letters: what is wrong in words, and the evidence.

  Reads verdicts and the operational tables only, never a Silver result, so that it can be built when
  Silver could not. A table of verdicts that is not there yet is left out. -#}
  {% set record_types = var('record_types') %}
  {% set rules = contracts() %}
  {% set worked_in = {} %}
  {% set judged = [] %}
  {% set parents = [] %}
  {% if execute %}
    {% for record_type in record_types %}
      {% if load_relation(ref(record_type ~ '_judged')) is not none %}{% do judged.append(record_type) %}{% endif %}
    {% endfor %}
    {% for record_type in var('parents') if load_relation(ref(record_type ~ '_children')) is not none %}
      {% do parents.append(record_type) %}
    {% endfor %}
    {% if is_incremental() %}
      {% for row in run_query(
        "select record_type, date_format(max(_judged_at), 'yyyy-MM-dd HH:mm:ss.SSSSSS') from " ~ this
        ~ " where _judged_at is not null group by record_type").rows %}
        {% do worked_in.update({row[0]: "timestamp'" ~ row[1] ~ "Z'"}) %}
      {% endfor %}
    {% endif %}
  {% else %}
    {% set judged = record_types %}
    {% set parents = var('parents') %}
  {% endif %}
with

{% for record_type in judged %}
{{ record_type }} as (
  select
    verdicts._record_id as record_id,
    '{{ record_type }}' as record_type,
    verdicts._source_file as source_file,
    verdicts._dataset as dataset,
    {% set refusing = (rules.get(record_type) or {'rules': []}).rules | rejectattr('severity', 'equalto', 'warn') | list %}
    case element_at(verdicts.failure_reasons, 1)
      {% for rule in refusing %}
      when '{{ rule.code }}' then '{{ rule.stage }}'
      {% endfor %}
      else 'business_rule'
    end as stage,
    element_at(verdicts.failure_reasons, 1) as error_type,
    concat(
      '{{ record_type }}, ', verdicts._source_file,
      '{{ ' line ' if (rules.get(record_type) or {}).format == 'csv' else ' record ' }}',
      verdicts._position, ': ',
      coalesce(
        concat(
          verdicts._parse_error.message, ' (line ', verdicts._parse_error.line, ', column ',
          verdicts._parse_error.column, '). '
        ),
        concat(nullif(array_join(verdicts._misfits, '; '), ''), '. '),
        ''
      ),
      case element_at(verdicts.failure_reasons, 1)
        {% for rule in refusing %}
        when '{{ rule.code }}' then {{ sql_string(rule.code ~ ': ' ~ rule.why ~ ' ' ~ rule.fix) }}
        {% endfor %}
        else ''
      end
    ) as error_message,
    verdicts._position as position,
    concat_ws(
      '|',
      {% for column in (rules.get(record_type) or {'key': ['_record_id']}).key %}
      coalesce(verdicts.{{ column }}, ''){{ ',' if not loop.last }}
      {% endfor %}
    ) as business_key,
    verdicts.failure_reasons,
    verdicts._verdict_contract as verdict_contract,
    verdicts._pipeline_version as pipeline_version,
    verdicts._batch_id as batch_id,
    verdicts._judged_at,
    coalesce(verdicts._attempt, 1) as attempt
  from ({{ latest_verdicts(record_type) }}) as verdicts
  where
    size(verdicts.failure_reasons) > 0
    and {{ is_after('verdicts._judged_at', worked_in.get(record_type)) }}
),

{{ record_type }}_payloads as (
  select
    _record_id as record_id,
    payload
  from {{ ref('stg_' ~ record_type) }}
  where {{ judged_batches(record_type, worked_in.get(record_type), 'size(failure_reasons) > 0') }}
),

{% endfor %}
{% if judged %}
refused_records as (
  {% for record_type in judged %}
  {{ 'union all' if not loop.first }}
  select
    sha2(
      concat_ws('|', refused.record_id, refused.stage, refused.verdict_contract, refused.attempt), 256
    ) as dead_letter_id,
    refused.* except (attempt),
    payloads.payload,
    refused.attempt
  from {{ record_type }} as refused
  inner join {{ record_type }}_payloads as payloads on refused.record_id = payloads.record_id
  {% endfor %}
),

{% endif %}
{% for record_type in parents %}
{% set tables = children_of(record_type) %}
{% set worked_in_children = [] %}
{% for table in tables if worked_in.get(table.table) %}{% do worked_in_children.append(worked_in[table.table]) %}{% endfor %}
{{ record_type }}_refused_children as (
  {{ refused_children(record_type, worked_in_children | max if worked_in_children else none) }}
),

{{ record_type }}_children_letters as (
  select
    sha2(
      concat_ws('|', record_id, 'transformation', _verdict_contract, '1', table_name, ordinal), 256
    ) as dead_letter_id,
    record_id,
    table_name as record_type,
    _source_file as source_file,
    dataset,
    'transformation' as stage,
    element_at(failure_reasons, 1) as error_type,
    concat(
      table_name, ' ', ordinal, ' of {{ record_type }}, ', _source_file, ' record ', _position, ': ',
      coalesce(concat(nullif(array_join(misfits, '; '), ''), '. '), ''),
      case concat(table_name, ' ', element_at(failure_reasons, 1))
        {% for table in tables %}
        {% for rule in table.rules if rule.severity != 'warn' %}
        when '{{ table.table }} {{ rule.code }}' then {{ sql_string(rule.code ~ ': ' ~ rule.why ~ ' ' ~ rule.fix) }}
        {% endfor %}
        {% endfor %}
        else ''
      end
    ) as error_message,
    _position as position,
    concat_ws(
      '|',
      {% for column in (rules.get(record_type) or {'key': ['entry_id']}).key %}
      coalesce({{ 'dataset' if column == '_dataset' else column }}, ''),
      {% endfor %}
      ordinal
    ) as business_key,
    failure_reasons,
    _verdict_contract as verdict_contract,
    cast(null as string) as pipeline_version,
    _batch_id as batch_id,
    _judged_at,
    payload,
    1 as attempt
  from {{ record_type }}_refused_children
),

{% endfor %}
failed_files as (
  select
    *,
    -- What is found in a file that was read all the same, such as a column that is not there.
    if(status = 'failed', 'file_read', 'schema_validation') as stage,
    row_number() over (partition by file_sha256, source_file, record_type order by batch_id) as attempt
  from {{ ref('stg_files') }}
  where status = 'failed' or (status = 'ingested' and error_type is not null)
),

refused_files as (
  select
    sha2(concat_ws('|', file_sha256, source_file, record_type, stage, attempt), 256) as dead_letter_id,
    cast(null as string) as record_id,
    record_type,
    source_file,
    coalesce(dataset, 'unknown') as dataset,
    stage,
    error_type,
    error_message,
    cast(null as int) as position,
    cast(null as string) as business_key,
    array(error_type) as failure_reasons,
    cast(null as string) as verdict_contract,
    cast(null as string) as pipeline_version,
    batch_id,
    cast(null as timestamp) as _judged_at,
    cast(null as string) as payload,
    attempt
  from failed_files
),

failed_statements as (
  select
    failure_id as dead_letter_id,
    cast(null as string) as record_id,
    node as record_type,
    source_file,
    'unknown' as dataset,
    stage,
    error_type,
    error_message,
    cast(null as int) as position,
    cast(null as string) as business_key,
    array(error_type) as failure_reasons,
    cast(null as string) as verdict_contract,
    pipeline_version,
    run_id as batch_id,
    cast(null as timestamp) as _judged_at,
    cast(null as string) as payload,
    1 as attempt
  from {{ ref('stg_run_failures') }}
),

missing_lists as (
  {{ missing_lists(parents) }}
),

unnamed_codes as (
  select
    -- A list is told once for as long as the lake lives, however many records and versions cite it.
    sha2(concat_ws('|', 'catalogue', 'CODE_LIST_MISSING', list_id), 256) as dead_letter_id,
    cast(null as string) as record_id,
    'codice_codes' as record_type,
    cast(null as string) as source_file,
    'unknown' as dataset,
    'catalogue' as stage,
    'CODE_LIST_MISSING' as error_type,
    concat(
      'codice_codes: records cite the code list ', list_id, ' (', list_uri, ') and no version of it is ',
      'here, so its codes are shown without names. Take its .gc file from its publisher, load it with ',
      '\'lakehouse catalogue load\' and run again: the names appear.'
    ) as error_message,
    cast(null as int) as position,
    list_id as business_key,
    array('CODE_LIST_MISSING') as failure_reasons,
    cast(null as string) as verdict_contract,
    cast(null as string) as pipeline_version,
    cast(null as string) as batch_id,
    cast(null as timestamp) as _judged_at,
    cast(null as string) as payload,
    1 as attempt
  from missing_lists
),

refused_and_given_up as (
  {{ message_letters() }}
),

all_stages as (
  {% if judged %}
  select * from refused_records
  union all
  {% endif %}
  {% for record_type in parents %}
  select * from {{ record_type }}_children_letters
  union all
  {% endfor %}
  select * from refused_files
  union all
  select * from failed_statements
  union all
  select * from unnamed_codes
  union all
  select
    dead_letter_id,
    record_id,
    record_type,
    source_file,
    dataset,
    stage,
    error_type,
    error_message,
    position,
    business_key,
    failure_reasons,
    verdict_contract,
    pipeline_version,
    batch_id,
    _judged_at,
    payload,
    attempt
  from refused_and_given_up
),

letters as (
  select
    dead_letter_id,
    record_type,
    source_file,
    dataset,
    stage,
    error_type,
    error_message,
    {{ run_clock() }} as processing_timestamp,
    position,
    record_id,
    business_key,
    failure_reasons,
    payload,
    verdict_contract,
    pipeline_version,
    batch_id,
    attempt,
    _judged_at
  from all_stages
  {% if is_incremental() %}
  where dead_letter_id not in (select dead_letter_id from {{ this }})
  {% endif %}
)

select * from letters
{% endmacro %}
