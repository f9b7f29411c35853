{% macro spark__create_csv_table(model, agate_table) %}
  {#- Overrides dbt-spark's: the table comes with its rows, in the one statement of load_csv_rows. Only
  a seed without rows is made here. -#}
  {% if agate_table.rows | length == 0 %}
    {% do fill_seed_table(model, agate_table) %}
  {% endif %}
  {{ return('') }}
{% endmacro %}


{% macro spark__reset_csv_table(model, full_refresh, old_relation, agate_table) %}
  {#- Overrides dbt-spark's, which drops the table. Here the catalog would forget the table and its
  folder would stay, and the rows would stand there twice. -#}
  {{ return(create_csv_table(model, agate_table)) }}
{% endmacro %}


{% macro spark__load_csv_rows(model, agate_table) %}
  {#- Overrides dbt-spark's, which writes an empty text as 'None' and breaks on an apostrophe. A seed
  whose file and types are what the table was made of is left alone: nothing changed, nothing written. -#}
  {% set made_of = seed_hash(model) %}
  {#- Of a seed of more than a megabyte dbt knows only the path. -#}
  {% set is_known = model['checksum']['name'] != 'path' and not should_full_refresh() %}
  {% if is_known and load_relation(this) is not none %}
    {% set properties = run_query("show tblproperties " ~ this ~ "('lakehouse.seed')") %}
    {% if properties.rows and properties.rows[0][1] == made_of %}
      {{ return("select 'the seed is unchanged'") }}
    {% endif %}
  {% endif %}
  {{ return(fill_seed_table(model, agate_table)) }}
{% endmacro %}


{% macro fill_seed_table(model, agate_table) %}
  {#- Replace a seed's table by its rows in one statement: whoever reads meanwhile sees the old ones. -#}
  {% set types = model['config'].get('column_types', {}) %}
  {% set columns = [] %}
  {% for name in agate_table.column_names %}
    {% do columns.append({
      'name': name, 'type': types.get(name, adapter.convert_type(agate_table, loop.index0))
    }) %}
  {% endfor %}
  {% set sql %}
    create or replace table {{ this }}
    {{ file_format_clause() }}
    tblproperties ('lakehouse.seed' = '{{ seed_hash(model) }}')
    as
    select
      {% for column in columns %}
      cast(`{{ column.name }}` as {{ column.type }}) as `{{ column.name }}`{{ ',' if not loop.last }}
      {% endfor %}
    from values
      {% for row in agate_table.rows %}
      ({% for value in row %}{{ seed_value(value) }}{{ ', ' if not loop.last }}{% endfor %}){{ ',' if not loop.last }}
      {% else %}
      ({% for column in columns %}cast(null as string){{ ', ' if not loop.last }}{% endfor %})
      {% endfor %}
      as seed ({% for column in columns %}`{{ column.name }}`{{ ', ' if not loop.last }}{% endfor %})
    {{ 'where false' if agate_table.rows | length == 0 }}
  {% endset %}
  {% call statement('fill_seed_table') %}{{ sql }}{% endcall %}
  {{ return(sql) }}
{% endmacro %}


{% macro seed_value(value) %}
  {#- A seed's value as a literal that Spark reads back as the same text; an empty cell is null. Spark
  would fill in what stands as ${name}, also inside a literal. -#}
  {%- if value is none -%}cast(null as string)
  {%- else -%}'{{ (value | string).replace('\\', '\\\\').replace("'", "\\'").replace('${', '\\u0024{') }}'
  {%- endif -%}
{% endmacro %}


{% macro seed_hash(model) %}
  {#- What a seed's table is made of: the file's content, and the types of its columns. -#}
  {{ return(local_md5(model['checksum']['checksum'] ~ model['config'].get('column_types', {}))) }}
{% endmacro %}
