{#- Personal values for those who may not see them. ingest/pii.py says the same in Python. -#}

{% macro mask(column, how) %}
  {#- A text as it is shown: `hash`, `partial`, `drop` or `natural_person`; null stays null. -#}
  {%- if how == 'partial' -%}
    concat(left({{ column }}, 1), '***')
  {%- elif how == 'drop' -%}
    case when {{ column }} is not null then '***' end
  {%- elif how == 'natural_person' -%}
    case
      when
        length(trim({{ column }})) = 9
        and regexp_like(upper(trim({{ column }})), '^[0-9XYZKLM][0-9]{7}[A-Z]')
        then {{ mask(column, 'hash') }}
      else {{ column }}
    end
  {%- elif how == 'hash' -%}
    concat('#', left(sha2({{ column }}, 256), 12))
  {%- else -%}
    {{ exceptions.raise_compiler_error("mask of " ~ column ~ " is '" ~ how ~ "'. See docs/privacy.md.") }}
  {%- endif -%}
{% endmacro %}


{% macro personal_columns() %}
  {#- Names of personal columns and their masks, from the contracts, the models' YAML and the sources. A
  name means the same in every table. -#}
  {% set found = {} %}
  {% for node in (graph.sources.values() | list) + (graph.nodes.values() | list) %}
    {% for column in node.columns.values() %}
      {% set pii = ((column.get('config') or {}).get('meta') or {}).get('pii') %}
      {% if pii %}{% do found.update({column.name: pii.mask}) %}{% endif %}
    {% endfor %}
  {% endfor %}
  {% for terms in contracts().values() %}
    {% for field in terms.fields if field.pii %}
      {% do found.update({field.name: field.pii.mask}) %}
    {% endfor %}
  {% endfor %}
  {{ return(found) }}
{% endmacro %}


{% macro create_masked_views(schema='masked') %}
  {#- Views of Silver and the marts for those who may not see what is personal: personal columns masked,
  texts of records left out, and tables of nested children not shown. For a server whose catalog lasts:
  dbt run-operation create_masked_views, then grant on this schema alone. -#}
  {% set withheld = ['payload', 'error_message', 'business_key', '_parse_error', '_misfits', 'misfits',
    'evidence'] %}
  {% set personal = personal_columns() %}
  {% do register_lake() %}
  {% do run_query('create schema if not exists ' ~ schema) %}
  {% for node in graph.nodes.values() | selectattr('resource_type', 'equalto', 'model') | sort(attribute='name') %}
    {% if node.schema in ('silver', 'marts') and not node.name.endswith('_children')
      and lake_has(node.schema, node.name) %}
      {% set seen = [] %}
      {% set shown = [] %}
      {#- After its columns a partitioned table names those of its partitions again. -#}
      {% for row in run_query('describe ' ~ node.schema ~ '.' ~ node.name).rows
        if row[0] and not row[0].startswith('#') and row[0] not in withheld %}
        {% set name, how = row[0], personal.get(row[0]) %}
        {% if name not in seen %}
          {% do seen.append(name) %}
          {% if not how %}
            {% do shown.append(name) %}
          {% elif row[1].startswith('array') %}
            {% do shown.append('transform(' ~ name ~ ', item -> ' ~ mask('item', how) ~ ') as ' ~ name) %}
          {% else %}
            {% do shown.append(mask('cast(' ~ name ~ ' as string)', how) ~ ' as ' ~ name) %}
          {% endif %}
        {% endif %}
      {% endfor %}
      {% do run_query(
        'create or replace view ' ~ schema ~ '.' ~ node.name ~ ' as select ' ~ shown | join(', ')
        ~ ' from ' ~ node.schema ~ '.' ~ node.name) %}
    {% endif %}
  {% endfor %}
{% endmacro %}
