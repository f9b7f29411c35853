{% macro children_of(record_type) %}
  {#- The tables of what a record holds many of, from their models' YAML: a list of `table`, `from`,
  `fields` (name, from, type) and `rules`, sorted by table. -#}
  {% set found = [] %}
  {% if execute %}
    {% for node in graph.nodes.values() | selectattr('resource_type', 'equalto', 'model') | sort(attribute='name') %}
      {% set child = node.config.get('meta', {}).get('child') %}
      {% if child and child.of == record_type %}
        {% set fields = [] %}
        {% for column in node.columns.values() if column.config.get('meta', {}).get('from') %}
          {% do fields.append({'name': column.name, 'from': column.config.meta['from'], 'type': column.config.meta.type}) %}
        {% endfor %}
        {% do found.append({'table': node.name, 'from': child['from'], 'fields': fields, 'rules': child.rules}) %}
      {% endif %}
    {% endfor %}
  {% endif %}
  {{ return(found) }}
{% endmacro %}


{% macro judge_children(record_type) %}
  {#- Judge what accepted records hold many of, in one statement for all tables.

  One row per accepted record and verdict: per table one array of its children, each with its ordinal,
  its typed fields, `failure_reasons`, `warnings`, `misfits`, and its own text as JSON where it is
  refused. An array is empty where a record has none, never null: one null would make the concat of all
  tables' refused children null, and count as -1. Bronze is read once, and only the batches with new
  verdicts. What is asked of all history stands in front and is short, so that Delta has statistics on it
  and the arrays need not be read for it. -#}
  {% set done = done_until() %}
  {% set terms = contract(record_type) %}
  {% set tables = children_of(record_type) %}
  {% set cited = [] %}
  {% for code in listed_codes(terms.fields) %}{% do cited.append(code ~ '_list_uri') %}{% endfor %}
with

verdicts as (
  select
    _record_id,
    _dataset,
    _source_file,
    _position,
    _batch_id,
    _ingested_at,
    _judged_at,
    {{ terms.key | reject('equalto', '_dataset') | join(', ') }},
    {{ terms.order_by or '_ingested_at' }},
    array({{ cited | join(', ') if cited else 'cast(null as string)' }}) as cited_lists
  from {{ ref(record_type ~ '_judged') }}
  where
    _verdict_pass = {{ latest_pass(record_type) }}
    and size(failure_reasons) = 0
    and {{ is_after('_judged_at', done) }}
),

bronze as (
  select
    _record_id,
    {% for table in tables %}
    coalesce({{ table['from'] }}, array()) as raw_{{ table.table }}{{ ',' if not loop.last }}
    {% endfor %}
  from {{ ref('stg_' ~ record_type) }}
  where {{ judged_batches(record_type, done) }}
),

typed as (
  select
    verdicts.*,
    {% for table in tables %}
    bronze.raw_{{ table.table }},
    transform(
      bronze.raw_{{ table.table }},
      (child, i) -> named_struct(
        'ordinal', cast(i + 1 as int){% for field in table.fields %},
        '{{ field.name }}', {{ typed('(' ~ field['from'] ~ ')', field.type) }}{% endfor %}

      )
    ) as {{ table.table }}{{ ',' if not loop.last }}
    {% endfor %}
  from verdicts
  inner join bronze on verdicts._record_id = bronze._record_id
),

compared as (
  select
    *,
    {% for table in tables %}
    {% set can = [] %}
    {% for field in table.fields if can_misfit(field.type) %}{% do can.append(field) %}{% endfor %}
    {% if can %}
    zip_with(
      raw_{{ table.table }},
      {{ table.table }},
      (child, row) -> filter(array(
        {% for field in can %}
        case
          when {{ misfit('(' ~ field['from'] ~ ')', 'row.' ~ field.name, field.type) }}
            then named_struct('field', '{{ field.name }}', 'text', {{ child_misfit_text(field) }})
        end{{ ',' if not loop.last }}
        {% endfor %}
      ), item -> item is not null)
    ) as misfits_{{ table.table }}{{ ',' if not loop.last }}
    {% else %}
    transform(
      raw_{{ table.table }}, child -> cast(array() as array<struct<field: string, text: string>>)
    ) as misfits_{{ table.table }}{{ ',' if not loop.last }}
    {% endif %}
    {% endfor %}
  from typed
),

asked as (
  select
    _record_id as record_id,
    _dataset as dataset,
    {{ terms.key | reject('equalto', '_dataset') | join(', ') }},
    {{ terms.order_by or '_ingested_at' }},
    array_compact(array_distinct(concat(
      cited_lists{% for table in tables %}{% for code in listed_codes(table.fields) %},
      {{ table.table }}.{{ code }}_list_uri{% endfor %}{% endfor %}

    ))) as _cited_lists,
    _source_file,
    _position,
    _batch_id,
    '{{ own_contracts() }}' as _verdict_contract,
    _judged_at,
    {% for table in tables %}
    transform(
      zip_with(
        {{ table.table }},
        misfits_{{ table.table }},
        (child, misfits) -> named_struct(
          'row', child,
          {% for output, severities in [
            ('failure_reasons', ['quarantine', 'drop', 'fail']), ('warnings', ['warn'])
          ] %}
          '{{ output }}', filter(array(
            {% for rule in table.rules if rule.severity in severities %}
            case when {{ child_predicate(rule) }} then '{{ rule.code }}' end,
            {% endfor %}
            cast(null as string)
          ), item -> item is not null),
          {% endfor %}
          'misfits', misfits
        )
      ),
      (child, i) -> named_struct(
        'row', child.row,
        'failure_reasons', child.failure_reasons,
        'warnings', child.warnings,
        'misfits', child.misfits,
        'text', case when size(child.failure_reasons) > 0 then to_json(get(raw_{{ table.table }}, i)) end
      )
    ) as {{ table.table }}{{ ',' if not loop.last }}
    {% endfor %}
  from compared
),

counted as (
  select
    {% for table in tables %}
    size(filter({{ table.table }}.failure_reasons, reasons -> size(reasons) > 0)) +
    {% endfor %}
    0 as _refused_count,
    asked.*
  from asked
)

select * from counted
{% endmacro %}


{% macro child_misfit_text(field) %}
  {#- What a child's value that did not convert says: the text, or the first of an array's. -#}
  {%- set raw = '(' ~ field['from'] ~ ')' -%}
  {%- if field.type.startswith('array<') -%}
    get(filter({{ misfits_of(raw, 'row.' ~ field.name) }}, item -> item is not null), 0)
  {%- else -%}
    {{ raw }}
  {%- endif -%}
{% endmacro %}


{% macro child_predicate(rule) %}
  {#- A rule's fault over one child as SQL that is never null. -#}
  {%- if rule.misfit -%}
    exists(misfits, item -> item.field in ('{{ rule.misfit | join("', '") }}'))
  {%- else -%}
    {{ total_predicate(rule) }}
  {%- endif -%}
{% endmacro %}


{% macro child_rows(record_type) %}
  {#- Sound children of the versions that are shown, as rows of their table.

  A version that is no longer shown takes its rows with it: they come with `_is_gone`, and the MERGE
  deletes them (see spark__get_merge_sql), in the same commit in which those of the newer one appear. -#}
  {% set done = done_until() %}
  {% set merging = is_incremental() %}
with

decisions as (
  select
    _record_id,
    disposition not in ('current', 'withdrawn') as _is_gone,
    _decided_at
  from {{ ref(record_type ~ '_dispositions') }}
  where
    {{ is_after('_decided_at', done) }}
    {% if not merging %}
    and disposition in ('current', 'withdrawn')
    {% endif %}
),

{{ sound_children(record_type, this.name, "'" ~ own_contracts() ~ "'", ['_is_gone'] if merging else []) }}

select * from sound
{% endmacro %}


{% macro sound_children(record_type, table, verdict_contract, decided) %}
  {#- CTEs up to `sound`: the children of one table that no rule refused, of the records in the CTE
  `decisions` before them. Args: the columns of `decisions` that the rows carry, `_decided_at` aside. -#}
  {% set fields = children_of(record_type) | selectattr('table', 'equalto', table) | map(attribute='fields') | first | default([]) %}
  {% set terms = contract(record_type) %}
records as (
  select
    children.dataset,
    {{ terms.key | reject('equalto', '_dataset') | join(', ') }},
    {{ terms.order_by or '_ingested_at' }},
    children.record_id,
    children._verdict_contract,
    {% for column in decided %}
    decisions.{{ column }},
    {% endfor %}
    decisions._decided_at,
    explode(children.{{ table }}) as child
  from {{ ref(record_type ~ '_children') }} as children
  inner join decisions on children.record_id = decisions._record_id
),

{{ catalogue_names() }},

sound as (
  select
    dataset,
    {{ terms.key | reject('equalto', '_dataset') | join(', ') }},
    {{ terms.order_by or '_ingested_at' }},
    record_id,
    child.row.*,
    {{ named_codes(fields, 'child.row.') }}
    child.warnings,
    {{ verdict_contract }} as _verdict_contract,
    {% for column in decided %}
    {{ column }},
    {% endfor %}
    _decided_at
  from records
  cross join catalogue
  where size(child.failure_reasons) = 0
)
{%- endmacro %}


{% macro child_history(record_type, table) %}
  {#- The sound children of every version, those of superseded ones among them (`is_superseded`): a query
  with the columns of the table, for a model that needs history. Repeats of a version are left out.
  ingest/query.py has the same for DuckDB. -#}
with

decisions as (
  select
    _record_id,
    disposition = 'superseded' as is_superseded,
    _decided_at
  from {{ ref(record_type ~ '_dispositions') }}
  where disposition in ('current', 'superseded', 'withdrawn')
),

{{ sound_children(record_type, table, '_verdict_contract', ['is_superseded']) }}

select * from sound
{% endmacro %}


{% macro create_history_views() %}
  {#- For `dbt run-operation`: a view `history.<table>` in the catalog per table of children. No model, for
  a view leaves nothing in the lake and would cost every run; a catalog that lasts keeps them. -#}
  {% do register_lake() %}
  {% do run_query('create schema if not exists history') %}
  {% for record_type in var('parents') %}
    {% for child in children_of(record_type) %}
      {% do run_query('create or replace view history.' ~ child.table ~ ' as ' ~ child_history(record_type, child.table)) %}
    {% endfor %}
  {% endfor %}
{% endmacro %}


{% macro children_quarantine(record_type) %}
  {#- Refused children of every table in one: which, of what, why, and their own text as JSON. -#}
  {% set done = done_until() %}
with

refused as (
  {{ refused_children(record_type, done) }}
),

quarantined as (
  select
    *,
    _judged_at as detected_at
  from refused
)

select * from quarantined
{% endmacro %}


{% macro refused_children(record_type, done) %}
  {#- Refused children of every table as rows, judged after `done`. -#}
  {% set terms = contract(record_type) %}
  select
    dataset,
    {{ terms.key | reject('equalto', '_dataset') | join(', ') }},
    {{ terms.order_by or '_ingested_at' }},
    record_id,
    _source_file,
    _position,
    _batch_id,
    _verdict_contract,
    _judged_at,
    inline(concat(
      {% for table in children_of(record_type) %}
      {% set refusing = table.rules | rejectattr('severity', 'equalto', 'warn') | list %}
      {% if refusing %}
      transform(
        filter({{ table.table }}, child -> size(child.failure_reasons) > 0),
        child -> named_struct(
          'table_name', '{{ table.table }}',
          'ordinal', child.row.ordinal,
          'reason', case element_at(child.failure_reasons, 1)
            {% for rule in refusing %}
            when '{{ rule.code }}' then '{{ rule.reason }}'
            {% endfor %}
          end,
          'failure_reasons', child.failure_reasons,
          'warnings', child.warnings,
          'misfits', transform(child.misfits, item -> concat(item.field, ' is \'', item.text, '\'')),
          'payload', child.text
        )
      ),
      {% endif %}
      {% endfor %}
      array()
    ))
  from {{ ref(record_type ~ '_children') }}
  where _refused_count > 0 and {{ is_after('_judged_at', done) }}
{% endmacro %}
