{% macro spark__get_merge_sql(target, source, unique_key, dest_columns, incremental_predicates) %}
  {#- Overrides dbt-spark's MERGE: it asked Spark for the columns once more, and could not delete.

  A row of the source with `_is_gone` deletes the row of its key; see child_rows. -#}
  {%- set keys = [unique_key] if unique_key is string else unique_key -%}
  {%- set deletes = config.get('meta', {}).get('child') -%}
  merge into {{ target }} as DBT_INTERNAL_DEST
    using {{ source }} as DBT_INTERNAL_SOURCE
    on
      {% for key in keys %}
      {{ 'and ' if not loop.first }}DBT_INTERNAL_SOURCE.{{ key }} = DBT_INTERNAL_DEST.{{ key }}
      {% endfor %}
    {% if deletes %}
    when matched and DBT_INTERNAL_SOURCE._is_gone then delete
    {% endif %}
    when matched then update set *
    when not matched {{ 'and not DBT_INTERNAL_SOURCE._is_gone' if deletes }} then insert *
{% endmacro %}
