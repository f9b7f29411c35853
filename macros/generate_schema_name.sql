{% macro generate_schema_name(custom_schema_name, node) %}
  {#- The schema as it is named in dbt_project.yml, without the target's in front. -#}
  {{ return(custom_schema_name | trim if custom_schema_name else target.schema) }}
{% endmacro %}
