{#- What each table says, as rows (kind, id, record_type, batch_id, place, n, reasons, fault).

`kind` and `id` name a thing: a record, a file, a file's content, a key, a row that a Silver table
owes, a dead letter. `place` is where it was seen and `n` how often; `reasons` are its codes as text;
`fault` is a law that the row breaks by itself. -#}

{% macro observed(rows) %}
  {#- A generator of observations, so that a table that says several things is read once. -#}
  inline(array(
    {% for row in rows %}
    named_struct(
      'kind', {{ row.kind }}, 'id', {{ row.id }}, 'record_type', {{ row.record_type }},
      'batch_id', {{ row.batch_id }}, 'place', {{ row.place }}, 'n', cast({{ row.n }} as bigint),
      'reasons', cast({{ row.reasons or 'null' }} as string),
      'fault', cast({{ row.fault or 'null' }} as string)
    ){{ ',' if not loop.last }}
    {% endfor %}
  ))
{% endmacro %}


{% macro observe_bronze(record_type) %}
  {#- Records of finished batches, counted per file, and whether the payload still is what was cut. One
  without a text is `emptied`: whether by a purge, the events say. -#}
  {% set type = "'" ~ record_type ~ "'" %}
  select {{ observed([
    {'kind': "'record'", 'id': '_record_id', 'record_type': type, 'batch_id': '_batch_id',
      'place': "if(payload is null and _payload_bytes is null, 'emptied', 'bronze')", 'n': 1,
      'fault': law_payload_text()},
    {'kind': "'file'", 'id': "concat_ws('|', " ~ type ~ ", _batch_id, _source_file)",
      'record_type': type, 'batch_id': '_batch_id', 'place': "'captured'", 'n': 1},
  ]) }}
  from {{ ref('stg_' ~ record_type) }}
{% endmacro %}


{% macro observe_verdicts(record_type) %}
  {#- The newest verdicts, and the faults that a verdict has by itself. -#}
  {% set type = "'" ~ record_type ~ "'" %}
  select {{ observed([
    {'kind': "'record'", 'id': '_record_id', 'record_type': type, 'batch_id': '_batch_id',
      'place': "'judged'", 'n': 1, 'reasons': "array_join(failure_reasons, ' ')",
      'fault': law_verdict(record_type)},
    {'kind': "'record'", 'id': '_record_id', 'record_type': type, 'batch_id': '_batch_id',
      'place': "'refused'", 'n': 'if(size(failure_reasons) > 0, 1, 0)',
      'fault': law_fail_rules(record_type)},
  ]) }}
  from ({{ latest_verdicts(record_type) }}) as verdicts
{% endmacro %}


{% macro observe_dispositions(record_type) %}
  {#- What became of accepted records, what caused it, and what Silver owes for it. -#}
  {% set type = "'" ~ record_type ~ "'" %}
  {% set key = contract(record_type).key or ['_record_id'] %}
  {% set rows = [
    {'kind': "'record'", 'id': '_record_id', 'record_type': type, 'batch_id': '_batch_id',
      'place': "'accepted'", 'n': 1, 'reasons': "''", 'fault': law_named_cause()},
    {'kind': "'record'", 'id': 'coalesce(by_record_id, _record_id)', 'record_type': 'cast(null as string)',
      'batch_id': 'cast(null as string)', 'place': "'cause'", 'n': 'if(by_record_id is null, 0, 1)'},
    {'kind': "'key'", 'id': "concat_ws('|', " ~ type ~ ", " ~ key | join(', ') ~ ")",
      'record_type': type, 'batch_id': '_batch_id', 'place': "'live'",
      'n': "if(disposition in ('current', 'withdrawn', 'waiting'), 1, 0)"},
  ] %}
  {% for table, shown in var('record_types')[record_type].items() %}
    {% do rows.append({'kind': "'" ~ table ~ "'", 'id': '_record_id', 'record_type': type,
      'batch_id': '_batch_id', 'place': "'due'",
      'n': "if(disposition in ('" ~ shown | join("', '") ~ "'), 1, 0)"}) %}
  {% endfor %}
  select {{ observed(rows) }}
  from {{ ref(record_type ~ '_dispositions') }}
{% endmacro %}


{% macro observe_quarantine(record_type) %}
  {#- Refused records as the quarantine shows them. -#}
  select {{ observed([
    {'kind': "'record'", 'id': '_record_id', 'record_type': "'" ~ record_type ~ "'",
      'batch_id': '_batch_id', 'place': "'quarantined'", 'n': 1,
      'reasons': "array_join(failure_reasons, ' ')",
      'fault': "case when coalesce(size(failure_reasons), 0) < 1 or reason is null then 'reasons' end"},
  ]) }}
  from {{ ref(record_type ~ '_quarantine') }}
{% endmacro %}


{% macro observe_silver(record_type, table) %}
  {#- What a Silver table shows. -#}
  select {{ observed([
    {'kind': "'" ~ table ~ "'", 'id': 'record_id', 'record_type': "'" ~ record_type ~ "'",
      'batch_id': '_batch_id', 'place': "'shown'", 'n': 1},
  ]) }}
  from {{ ref(table) }}
{% endmacro %}


{% macro observe_children(record_type) %}
  {#- Rows that the tables of children owe and show, counted per table: Delta knows the size of a table
  without reading it. A refused child is owed by the quarantine. -#}
  {% set tables = children_of(record_type) | map(attribute='table') | list %}
  {% set rows = [] %}
  {% for table in tables %}
    {% do rows.append({'kind': "'children'", 'id': "'" ~ table ~ "'", 'record_type': "'" ~ record_type ~ "'",
      'batch_id': 'cast(null as string)', 'place': "'due'", 'n': table}) %}
  {% endfor %}
  {% do rows.append({'kind': "'children'", 'id': "'refused'", 'record_type': "'" ~ record_type ~ "'",
    'batch_id': 'cast(null as string)', 'place': "'due'", 'n': 'refused'}) %}
  select {{ observed(rows) }}
  from (
    select
      {% for table in tables %}
      coalesce(sum(
        case
          when dispositions.disposition in ('current', 'withdrawn')
            then size(filter(children.{{ table }}.failure_reasons, reasons -> size(reasons) = 0))
        end
      ), 0) as {{ table }},
      {% endfor %}
      coalesce(sum(
        {% for table in tables %}
        size(filter(children.{{ table }}.failure_reasons, reasons -> size(reasons) > 0)) +
        {% endfor %}
        0
      ), 0) as refused
    from {{ ref(record_type ~ '_children') }} as children
    left join {{ ref(record_type ~ '_dispositions') }} as dispositions
      on children.record_id = dispositions._record_id
  ) as owed
  {% for table, rows in rows_in(tables + ['placsp_children_quarantine']).items() %}
  union all
  select
    'children', '{{ table if table in tables else 'refused' }}', '{{ record_type }}', null,
    'shown', {{ rows }}, null, null
  {% endfor %}
{% endmacro %}


{% macro rows_in(names) %}
  {#- The number of rows of models' tables, as literals: scans more in the one statement of the laws
  cost more than to ask Delta, which knows. law_results depends on them by its `depends_on` lines. -#}
  {% set found = {} %}
  {% set queries = [] %}
  {% for name in names %}
    {% do found.update({name: 0}) %}
    {% if execute %}
      {% set node = graph.nodes['model.lakehouse.' ~ name] %}
      {% do queries.append("select '" ~ name ~ "' as name, count(*) as n from " ~ node.schema ~ "." ~ node.alias) %}
    {% endif %}
  {% endfor %}
  {% if execute %}
    {% for row in run_query(queries | join(' union all ')).rows %}
      {% do found.update({row[0]: row[1] or 0}) %}
    {% endfor %}
  {% endif %}
  {{ return(found) }}
{% endmacro %}


{% macro observe_files() %}
  {#- What ingest says of files: records found by the independent count, contents, failures. -#}
  select {{ observed([
    {'kind': "'file'", 'id': "concat_ws('|', record_type, batch_id, source_file)",
      'record_type': 'record_type', 'batch_id': 'batch_id', 'place': "'found'",
      'n': "if(status = 'ingested', records_found, 0)"},
    {'kind': "'content'", 'id': "concat_ws('|', record_type, file_sha256)",
      'record_type': 'record_type', 'batch_id': 'batch_id', 'place': "'known'",
      'n': "if(status = 'ingested', 1, 0)"},
    {'kind': "'failed file'", 'id': 'source_file', 'record_type': 'record_type',
      'batch_id': 'batch_id', 'place': "'failed'", 'n': "if(status = 'failed', 1, 0)"},
  ]) }}
  from {{ ref('stg_files') }}
  where record_type is not null
{% endmacro %}


{% macro observe_purges() %}
  {#- Records that were purged. -#}
  select {{ observed([
    {'kind': "'record'", 'id': 'record_id', 'record_type': 'cast(null as string)',
      'batch_id': 'cast(null as string)', 'place': "'purged'", 'n': 1},
  ]) }}
  from ({{ purged_records() }}) as purges
{% endmacro %}


{% macro observe_dead_letters() %}
  {#- Dead letters: of records under the contract in force, of files, and each by its own id. -#}
  {% set current = [] %}
  {% for record_type in var('record_types') %}{% do current.append(verdict_contract(record_type)) %}{% endfor %}
  select {{ observed([
    {'kind': "if(record_id is null, 'failed file', 'record')", 'id': 'coalesce(record_id, source_file, dead_letter_id)',
      'record_type': "if(stage in ('transformation', 'merge'), cast(null as string), record_type)",
      'batch_id': 'batch_id', 'place': "'letter'",
      'n': "if(record_id is null or verdict_contract in ('" ~ current | join("', '") ~ "'), 1, 0)"},
    {'kind': "'letter'", 'id': 'dead_letter_id', 'record_type': 'record_type',
      'batch_id': 'batch_id', 'place': "'known'", 'n': 1},
  ]) }}
  from {{ ref('dead_letters') }}
{% endmacro %}


{% macro latest_judged_at(record_type) %}
  {#- The instant of the newest verdicts of a record type, as a literal. -#}
  {% if not execute %}{{ return(run_clock()) }}{% endif %}
  {% set newest = run_query("select date_format(max(_judged_at), 'yyyy-MM-dd HH:mm:ss.SSSSSS') from "
    ~ ref(record_type ~ '_judged')).rows[0][0] %}
  {{ return("timestamp'" ~ (newest or '1970-01-01 00:00:00') ~ "Z'") }}
{% endmacro %}
